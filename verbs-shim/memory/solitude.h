// SPDX-License-Identifier: BSD-3-Clause
// Whether anything but the calling thread can make a system call that touches this process's
// memory. Without full userfaultfd, pages change place only while nothing can: a call that meets a
// page on its way would fail.
#pragma once

#include <sys/types.h>

#include <span>

namespace hostnic::memory {

// Whether there is no thread but the caller, `ours`, and those that have ended and only wait for
// the kernel to take them out of its list; and nothing that the kernel does in the background
// (io_uring, AIO). It waits for threads that are just ending, a hundred pauses of 100 us in all at
// most. This allocates nothing; false when the kernel does not tell.
bool is_alone(std::span<const pid_t> ours);

// Whether there is no thread but the caller and `ours`, not even one that ends.
bool is_only_thread(std::span<const pid_t> ours);

}  // namespace hostnic::memory
