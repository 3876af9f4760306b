// SPDX-License-Identifier: BSD-3-Clause
// The number of /dev/infiniband/rdma_cm. Where the kernel has rdma_cm, too, it tells librdmacm the
// number of its device by netlink, and librdmacm takes no file that has another.
#pragma once

#include <optional>
#include <string_view>

namespace hostnic::cm_device {

inline constexpr unsigned kMiscMajor = 10;
// Where the kernel has no rdma_cm nobody compares.
inline constexpr unsigned kAnyMinor = 58;

// rdma_cm's minor number in what /proc/misc says; nothing if it is not listed.
std::optional<unsigned> minor_in(std::string_view misc_devices);

// The minor number that our device must have now; the kernel's module may come at any time.
unsigned device_minor() noexcept;

}  // namespace hostnic::cm_device
