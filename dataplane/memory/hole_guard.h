// SPDX-License-Identifier: BSD-3-Clause
// Keeps hostnicd from making pages for clients that it does not trust. A client that punches holes
// into memory that it shares with hostnicd would have each access there allocate a page, in the
// lcore's time and at the expense of hostnicd's control group. In guarded memory such an access
// raises SIGBUS instead, with which sigbus.h deals: the client is dropped.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hostnic {

// Whether the kernel lets us guard memory (userfaultfd, Linux 5.11 for ordinary users; seccomp
// profiles of containers may forbid it). [any thread]
bool can_guard_holes();
// Guards a mapping of whole pages of tmpfs or hugetlbfs, shared and writable or private; the guard
// ends with the mapping. Pages that the file has go on coming as they do. Returns false where that
// can't be had. [any thread]
bool guard_holes(std::byte* start, uint64_t length_bytes);

}  // namespace hostnic
