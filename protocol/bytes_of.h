// SPDX-License-Identifier: BSD-3-Clause
// The bytes of a structure, for what takes them as such.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

namespace hostnic {

// Strings and containers don't compile: their own bytes are addresses of this process. [any thread]
template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  static_assert(std::is_trivially_copyable_v<T> && !requires { value.data(); });
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace hostnic
