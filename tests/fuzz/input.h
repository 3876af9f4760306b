// SPDX-License-Identifier: BSD-3-Clause
// An input as a program for fuzzers that do things in turn. Reading past the end gives zeros.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace hostnic::fuzz {

inline void require(bool condition) {
  if (!condition) std::abort();  // libFuzzer prints the stack and keeps the input
}

class Input {
 public:
  Input(const uint8_t* data, size_t size) : at_(data), left_(size) {}
  bool empty() const { return left_ == 0; }
  template <typename T>
  T take() {
    T value{};
    const size_t bytes = std::min(sizeof(T), left_);
    if (bytes != 0) std::memcpy(&value, at_, bytes);
    at_ += bytes;
    left_ -= bytes;
    return value;
  }
  uint32_t below(uint32_t bound) { return take<uint8_t>() % bound; }
  // Mostly small, now and then anything.
  uint32_t number() {
    const auto kind = take<uint8_t>();
    return kind < 240 ? kind : take<uint32_t>();
  }

 private:
  const uint8_t* at_;
  size_t left_;
};

}  // namespace hostnic::fuzz
