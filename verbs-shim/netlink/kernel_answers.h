// SPDX-License-Identifier: BSD-3-Clause
// The kernel's part of RDMA netlink, for machines that have adapters, or rdma_rxe, beside our
// devices: it is asked for what is its, and lists are both's. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hostnic::netlink {

using Bytes = std::vector<std::byte>;

// Whose business a datagram is. Ours are devices whose index is `first_index` or more.
enum class Whose { kOurs, kKernels, kBoths };
Whose whose(std::span<const std::byte> datagram, uint32_t first_index);

// The index behind the last of the kernel's devices, by its answer to a request for their list; 0:
// it has none.
uint32_t index_behind(const std::vector<Bytes>& answers);

// The kernel's answers to a request for a list without the list's end, which comes with ours.
std::vector<Bytes> without_end(std::vector<Bytes> answers);

// The request for the list of the kernel's devices.
Bytes device_list_request();

}  // namespace hostnic::netlink
