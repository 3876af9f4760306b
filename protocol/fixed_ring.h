// SPDX-License-Identifier: BSD-3-Clause
// A queue in place, of a fixed size. Not for several threads.
#pragma once

#include <array>
#include <cstdint>

namespace hostnic {

// A queue of `kEntries` elements at most, a power of two.
template <class T, uint32_t kEntries>
class FixedRing {
 public:
  static_assert((kEntries & (kEntries - 1)) == 0);
  bool empty() const { return begin_ == end_; }
  bool full() const { return end_ - begin_ == kEntries; }
  uint32_t size() const { return end_ - begin_; }
  T& front() { return items_[begin_ % kEntries]; }
  T& back() { return items_[(end_ - 1) % kEntries]; }
  // `i` counts from the oldest.
  const T& at(uint32_t i) const { return items_[(begin_ + i) % kEntries]; }
  // The ring must not be full.
  void push(const T& item) { items_[end_++ % kEntries] = item; }
  void pop_front() { ++begin_; }
  void pop_back() { --end_; }
  void clear() { begin_ = end_; }

 private:
  std::array<T, kEntries> items_{};
  uint32_t begin_ = 0, end_ = 0;
};

}  // namespace hostnic
