// SPDX-License-Identifier: BSD-3-Clause
// Seeded randomness of the workload: both sides draw the same numbers from the same seed.
#pragma once

#include <cstdint>

namespace hostnic::verify {

// A bijection of 64-bit words with good avalanche: multiply and shift, twice.
constexpr uint64_t mix64(uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ULL;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ULL;
  x ^= x >> 32;
  return x;
}

class Rng {
 public:
  explicit constexpr Rng(uint64_t seed) : state_(mix64(seed ^ 0x9e3779b97f4a7c15ULL)) {}

  constexpr uint64_t next() {
    state_ += 0x9e3779b97f4a7c15ULL;
    return mix64(state_);
  }
  // Uniform in [0, bound); 0 for bound 0.
  constexpr uint64_t below(uint64_t bound) {
    if (bound == 0) return 0;
    return static_cast<uint64_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
  }
  constexpr uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }
  constexpr bool percent(unsigned p) { return below(100) < p; }

 private:
  uint64_t state_;
};

}  // namespace hostnic::verify
