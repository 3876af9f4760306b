// SPDX-License-Identifier: BSD-3-Clause
// What was just written, field by field, must not be read by wider loads: a processor hands a
// store's value on to a load that it covers, but a load that needs several stores' values waits
// until they are in the cache, and so is everything before them. Where a cache line of theirs has
// to come from another core, that is a hundred nanoseconds and more. Compilers make wide loads of
// copied structures. Any thread.
#pragma once

#include <type_traits>

namespace hostnic {

// Returns the value of one field, loaded on its own.
template <class T>
inline T field(const T& in_memory) {
  static_assert(sizeof(T) <= sizeof(void*) && std::is_trivially_copyable_v<T>);
  T value = in_memory;
  asm("" : "+r"(value));
  return value;
}

}  // namespace hostnic
