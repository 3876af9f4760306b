// SPDX-License-Identifier: BSD-3-Clause
// A bounded queue of packet buffers. One thread.
#pragma once

#include <rte_mbuf.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace hostnic {

class PacketQueue {
 public:
  // Makes a queue of `capacity` packets: a power of two, or 0 for none.
  explicit PacketQueue(uint32_t capacity = 0) : slots_(capacity) {}

  bool empty() const { return head_ == tail_; }
  uint32_t size() const { return tail_ - head_; }
  uint32_t room() const { return static_cast<uint32_t>(slots_.size()) - size(); }

  // Appends a packet; returns false if the queue is full, and the packet is still the caller's.
  bool push(rte_mbuf* packet) {
    if (room() == 0) return false;
    slots_[tail_++ & mask()] = packet;
    return true;
  }
  // Moves the first packets into `packets`, at most `max`. Returns how many.
  uint16_t pop(rte_mbuf** packets, uint16_t max) {
    const auto count = static_cast<uint16_t>(std::min<uint32_t>(size(), max));
    for (uint16_t i = 0; i < count; ++i) packets[i] = slots_[head_++ & mask()];
    return count;
  }

 private:
  uint32_t mask() const { return static_cast<uint32_t>(slots_.size()) - 1; }

  std::vector<rte_mbuf*> slots_;
  uint32_t head_ = 0, tail_ = 0;  // modulo 2^32
};

}  // namespace hostnic
