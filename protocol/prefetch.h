// SPDX-License-Identifier: BSD-3-Clause
// Asks the cache for memory that will be needed soon. Any address, any thread.
#pragma once

#include <cstddef>

namespace hostnic {

inline constexpr size_t kCacheLineBytes = 64;

// Prefetches one cache line. `at` may be null: then nothing happens.
inline void prefetch_line(const void* at) {
  __builtin_prefetch(at);
  // The empty statement keeps the call: g++ 12 drops calls of functions that do nothing but
  // prefetch.
  asm volatile("");
}

// Prefetches the cache lines of [first, last], which are one object's.
inline void prefetch_lines(const void* first, const void* last) {
  for (auto* line = static_cast<const char*>(first); line <= last; line += kCacheLineBytes)
    prefetch_line(line);
}

}  // namespace hostnic
