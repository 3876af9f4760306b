// SPDX-License-Identifier: BSD-3-Clause
// Variables that moving pages uses itself: the C library's, the loader's and this library's, and
// those of the thread that moves. They are not moved: that thread would wait for a page that it has
// stopped. Programs that register all of their memory have them among it.
#pragma once

#include <cstdint>

namespace hostnic::memory {

// Finds them. It takes the loader's lock: before the registrar's.
void find_own_variables();
// Whether some lie in [start, end). Any thread.
bool holds_own_variables(uint64_t start, uint64_t end);

// Whole pages in which the calling thread has its control block, where the kernel looks whenever it
// has been preempted (rseq(2)), and errno.
struct ThreadPages {
  uint64_t start = 0, end = 0;
};
ThreadPages own_thread_pages();

}  // namespace hostnic::memory
