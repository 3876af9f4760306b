// SPDX-License-Identifier: BSD-3-Clause
// Queue pairs that found the send ring full, first come first served (docs/transport.md rule 4:
// room goes round). Each is in it at most once. All members want the driver lock held.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "verbs-shim/driver/zeroed_array.h"

namespace hostnic::driver {

class Qp;

class RingWaiters {
 public:
  // Makes room for so many queue pairs at most. To be called once, before the other functions.
  void set_capacity(uint32_t qps) { slots_.allocate(std::bit_ceil(std::max(qps, 1u))); }
  bool empty() const { return head_ == tail_; }
  uint32_t size() const { return tail_ - head_; }
  // The queue pair `position` places behind the first; size() must be larger.
  Qp* at(uint32_t position) const { return slots_[(head_ + position) & mask()]; }
  void push(Qp& qp) { slots_[tail_++ & mask()] = &qp; }
  Qp& pop() { return *slots_[head_++ & mask()]; }
  void erase(const Qp& qp) {
    const uint32_t end = tail_;
    tail_ = head_;
    for (uint32_t i = head_; i != end; ++i) {
      Qp* const kept = slots_[i & mask()];
      if (kept != &qp) slots_[tail_++ & mask()] = kept;
    }
  }

 private:
  uint32_t mask() const { return static_cast<uint32_t>(slots_.size()) - 1; }

  ZeroedArray<Qp*> slots_;
  uint32_t head_ = 0, tail_ = 0;
};

}  // namespace hostnic::driver
