// SPDX-License-Identifier: BSD-3-Clause
// /dev/infiniband/rdma_cm for the unmodified librdmacm: a file whose write() takes the commands of
// rdma/rdma_user_cm.h, and which is readable while an event waits. hostnicd answers
// (protocol/hostif/cm_message.h).
#pragma once

#include <sys/types.h>

#include <string_view>

namespace hostnic::cm_device {

inline constexpr std::string_view kPath = "/dev/infiniband/rdma_cm";

// Opens the device with these flags: returns a descriptor, or -1 with errno. -2: this process has
// no devices of ours; the path is the kernel's.
int open_device(int flags) noexcept;

// Does a write() to a file of ours: returns the bytes taken, or -1 with errno. It waits for
// hostnicd's answer, and for an event as the kernel's does: then the thread may be cancelled, and
// the frames that are unwound, this function's and its callers', must have nothing to clean up,
// since this library's unwinder is not the program's.
ssize_t write_command(int fd, const void* bytes, size_t size);

}  // namespace hostnic::cm_device
