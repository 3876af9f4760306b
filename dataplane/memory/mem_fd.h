// SPDX-License-Identifier: BSD-3-Clause
// Transfers to and from a client's memory by its /proc/self/mem descriptor: the way that always
// works, for one system call each. Any thread; allocates nothing.
//
// The descriptor is bound to the address space that opened it, not to a pid: after the client's
// exec or exit every transfer finds nothing there, never a foreign process. It ignores page
// protection, which is why the client checks that at registration.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>

#include "protocol/types.h"

namespace hostnic {

enum class MemFdResult {
  kOk,
  kGone,   // the address space is no more: the client exited or called exec
  kFault,  // (part of) the range is not mapped there any more: freed while registered
};

// Transfers contiguous bytes of the client at `va`. On kFault an unknown part was transferred.
MemFdResult read_client(int mem_fd, VirtualAddress va, std::span<std::byte> to);
MemFdResult write_client(int mem_fd, VirtualAddress va, std::span<const std::byte> from);

// Transfers several parts in one call: `parts` are in hostnicd, gathered to or scattered from
// contiguous client memory at `va`. There may be at most IOV_MAX (1024) parts.
MemFdResult read_client_scatter(int mem_fd, VirtualAddress va, std::span<const iovec> parts);
MemFdResult write_client_gather(int mem_fd, VirtualAddress va, std::span<const iovec> parts);

}  // namespace hostnic
