// SPDX-License-Identifier: BSD-3-Clause
// Bytes that a seed stands for, and the pages of memory that the model has: what a program's page
// contains, whoever maps it and whether anybody does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

namespace hostnic::twin {

inline constexpr size_t kPage = 4096;

constexpr uint64_t mix(uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ULL;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ULL;
  x ^= x >> 32;
  return x;
}

// Numbers of one seed, for ever the same.
class Rng {
 public:
  explicit constexpr Rng(uint64_t seed) : state_(mix(seed ^ 0x9e3779b97f4a7c15ULL)) {}
  constexpr uint64_t next() {
    state_ += 0x9e3779b97f4a7c15ULL;
    return mix(state_);
  }
  constexpr uint64_t below(uint64_t bound) { return bound == 0 ? 0 : next() % bound; }
  constexpr uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }
  constexpr bool percent(unsigned p) { return below(100) < p; }

 private:
  uint64_t state_;
};

// The page number `page` of what a seed stands for. Seed 0 stands for zeros.
void fill_page(uint8_t* to, uint64_t seed, uint64_t page);
// The first `length` bytes of what a seed stands for.
void fill(uint8_t* to, size_t length, uint64_t seed);

// A page of memory as an adapter pins it: bytes, and who leads to them.
class Frame {
 public:
  Frame() = default;
  ~Frame();
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  // All of the page: page number `page` of what the seed stands for. Costs no memory.
  void set_page(uint64_t seed, uint64_t page);
  void set(size_t offset, const uint8_t* bytes, size_t length);
  void get(uint8_t* to, size_t offset, size_t length) const;

  // By how many places of the program's memory the page can be seen.
  int attached = 0;
  bool is_led_to() const { return attached > 0 || kept; }
  // One of those places, or where it was last.
  uint64_t at = 0;
  // The program has given it away by a call of the C library's: keys that lead to it go on doing
  // so.
  bool kept = false;
  // A peer writes into it all the time: its bytes are unknown until that ends.
  bool busy = false;
  // What took its place when the program emptied it (MADV_DONTNEED). A key may lead there from then
  // on, also when that is no longer mapped.
  std::shared_ptr<Frame> heir;
  // Nobody sees it, and a peer's WRITE that failed has left unknown bytes in it.
  bool unknown = false;

 private:
  uint8_t* own_bytes();
  uint64_t seed_ = 0, page_ = 0;
  uint8_t* bytes_ = nullptr;
};

using FrameRef = std::shared_ptr<Frame>;

}  // namespace hostnic::twin
