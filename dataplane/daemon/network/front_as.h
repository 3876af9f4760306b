// SPDX-License-Identifier: BSD-3-Clause
// Structures in the kernel's answers, which need not be aligned.
#pragma once

#include <cstddef>
#include <cstring>
#include <optional>
#include <span>

namespace hostnic {

// Copies a structure from the beginning of the bytes; nothing if they are too few. [any thread]
template <class T>
std::optional<T> front_as(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

}  // namespace hostnic
