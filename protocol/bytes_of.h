// SPDX-License-Identifier: BSD-3-Clause
// The bytes of a structure, for what takes them as such.
#pragma once

#include <cstddef>
#include <span>

namespace hostnic {

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace hostnic
