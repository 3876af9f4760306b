// SPDX-License-Identifier: BSD-3-Clause
// Packet sequence numbers: 24 bits, compared as serial numbers (InfiniBand 9.7.1; RFC 1982
// arithmetic).
#pragma once

#include <cstdint>

namespace hostnic {

class Psn {
 public:
  static constexpr uint32_t kMask = 0xffffff;
  constexpr Psn() = default;
  constexpr explicit Psn(uint32_t value) : value_(value & kMask) {}
  constexpr uint32_t value() const { return value_; }
  constexpr Psn operator+(uint32_t n) const { return Psn(value_ + n); }
  constexpr Psn& operator+=(uint32_t n) { return *this = *this + n; }
  constexpr bool operator==(const Psn&) const = default;

 private:
  uint32_t value_ = 0;
};

// The distance from `from` to `to`, in [-2^23, 2^23). It is valid while the two are within half the
// number space, which windows of at most 4096 guarantee.
constexpr int32_t distance(Psn from, Psn to) {
  return static_cast<int32_t>((to.value() - from.value()) << 8) >> 8;
}
constexpr bool before(Psn a, Psn b) { return distance(a, b) > 0; }

// The distance between receive sequence numbers, which are 32 bits with the same serial arithmetic.
constexpr int32_t serial_distance(uint32_t from, uint32_t to) {
  return static_cast<int32_t>(to - from);
}

}  // namespace hostnic
