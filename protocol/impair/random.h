// SPDX-License-Identifier: BSD-3-Clause
// Random numbers for impairments. Own code, integers only: the standard library's distributions
// give different numbers in different libraries, and a seed must replay everywhere.
#pragma once

#include <cstdint>

namespace hostnic::impair {

// Probabilities are counted in parts per billion, which is 7 decimals of a percentage.
inline constexpr uint32_t kCertainPpb = 1'000'000'000;

// SplitMix64: a counter and a bijective mixing function.
class Random {
 public:
  explicit constexpr Random(uint64_t seed) : state_(seed) {}

  constexpr uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15); }

  // A number uniform in [0, bound); bound > 0. It is made by multiply and shift, whose bias of
  // bound / 2^64 is invisible.
  constexpr uint64_t below(uint64_t bound) { return multiply_shift(next(), bound); }

  // Returns true with the given probability. The certain cases draw no number.
  constexpr bool chance(uint32_t ppb) {
    if (ppb == 0) return false;
    return ppb >= kCertainPpb || below(kCertainPpb) < ppb;
  }

  // A number uniform in [base - spread, base + spread], cut at 0.
  constexpr uint64_t uniform(uint64_t base, uint64_t spread) {
    const uint64_t sum = base + below(2 * spread + 1);
    return sum > spread ? sum - spread : 0;
  }

  // A number of normal distribution with mean `base` and standard deviation `spread`, cut at 0:
  // twelve uniforms summed, whose tails end at six deviations.
  constexpr uint64_t normal(uint64_t base, uint64_t spread) {
    int64_t sum = 0;  // sum of twelve numbers in [0, 2^32): mean 6 * 2^32, deviation 2^32
    for (int i = 0; i < 12; ++i) sum += static_cast<int64_t>(next() >> 32);
    const int64_t deviation = sum - (int64_t{6} << 32);
    const uint64_t size =
        multiply_shift32(static_cast<uint64_t>(deviation < 0 ? -deviation : deviation), spread);
    if (deviation >= 0) return base + size;
    return base > size ? base - size : 0;
  }

  // A number of base + exponential distribution with mean `spread`, by von Neumann's comparisons of
  // uniforms, which need no logarithm. It ends at 64 means, whose probability is 2^-92.
  constexpr uint64_t exponential(uint64_t base, uint64_t spread) {
    for (uint64_t whole = 0; whole < 64; ++whole) {
      const uint64_t fraction = next();
      if (descending_run_is_odd(fraction)) {
        return base + whole * spread + multiply_shift(fraction, spread);
      }
    }
    return base + 64 * spread;
  }

  static constexpr uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

 private:
  __extension__ using Wide = unsigned __int128;
  static constexpr uint64_t multiply_shift(uint64_t a, uint64_t b) {
    return static_cast<uint64_t>((static_cast<Wide>(a) * b) >> 64);
  }
  static constexpr uint64_t multiply_shift32(uint64_t a, uint64_t b) {
    return static_cast<uint64_t>((static_cast<Wide>(a) * b) >> 32);
  }
  // Draws while the numbers descend from `first`, which counts as part of the run; returns whether
  // its length is odd.
  constexpr bool descending_run_is_odd(uint64_t first) {
    bool odd = true;
    for (uint64_t previous = first, number = next(); number < previous; number = next()) {
      previous = number;
      odd = !odd;
    }
    return odd;
  }

  uint64_t state_;
};

}  // namespace hostnic::impair
