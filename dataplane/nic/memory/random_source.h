// SPDX-License-Identifier: BSD-3-Clause
// Numbers that nobody outside can guess, for keys and queue pair numbers; or, with a seed, the same
// ones each time, for simulations.
#pragma once

#include <sys/random.h>

#include <array>
#include <cstdint>
#include <cstdlib>

namespace hostnic {

class RandomSource {
 public:
  // 0: the kernel's random numbers.
  explicit RandomSource(uint64_t seed) : seeded_(seed != 0), state_(seed) {}

  uint32_t next() {
    if (seeded_) {
      uint64_t z = state_ += 0x9e3779b97f4a7c15;
      z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
      z = (z ^ z >> 27) * 0x94d049bb133111eb;
      return static_cast<uint32_t>(z >> 32);
    }
    if (left_ == 0) {
      // So few bytes come whole, or not at all before the kernel has any.
      if (getrandom(stock_.data(), sizeof(stock_), 0) != sizeof(stock_)) std::abort();
      left_ = stock_.size();
    }
    return stock_[--left_];
  }

 private:
  bool seeded_;
  uint64_t state_;
  size_t left_ = 0;
  std::array<uint32_t, 64> stock_{};
};

}  // namespace hostnic
