// SPDX-License-Identifier: BSD-3-Clause
// Asks the cache for memory that will be needed soon. Any address, any thread.
#pragma once

#include <cstddef>

namespace hostnic {

inline constexpr size_t kCacheLineBytes = 64;

// Prefetches the cache lines of [first, last].
inline void prefetch_lines(const void* first, const void* last) {
  for (auto* line = static_cast<const char*>(first); line <= last; line += kCacheLineBytes)
    __builtin_prefetch(line);
  // The empty statement keeps the calls: g++ 12 drops calls of functions that do nothing but
  // prefetch.
  asm volatile("");
}
inline void prefetch_line(const void* at) { prefetch_lines(at, at); }

}  // namespace hostnic
