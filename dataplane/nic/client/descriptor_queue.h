// SPDX-License-Identifier: BSD-3-Clause
// Descriptors that a NIC has taken out of a client's ring but not looked at: many are copied out of
// shared memory at a time. Owned by the NIC's lcore.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "protocol/hostif/descriptors.h"
#include "protocol/hostif/ring.h"

namespace hostnic {

class DescriptorQueue {
 public:
  // A descriptor and all that may follow it always fit.
  static constexpr uint32_t kCapacity = 64;
  static_assert(kCapacity > kMaxExtraElements);

  bool empty() const { return begin_ == end_; }
  uint32_t waiting() const { return end_ - begin_; }
  // The first descriptor. Must not be called when empty().
  SendDescriptor front() const {
    SendDescriptor descriptor;
    std::memcpy(&descriptor, &elements_[begin_], sizeof(descriptor));
    return descriptor;
  }
  // The length of the first descriptor's payload, without a copy of the whole.
  uint32_t front_length_bytes() const {
    return word_at(begin_, offsetof(SendDescriptor, length_bytes));
  }
  SendOp front_op() const {
    static_assert(sizeof(SendOp) == 1 && offsetof(SendDescriptor, op) == 0);
    return static_cast<SendOp>(elements_[begin_].bytes[0]);
  }
  // The queue pair of the descriptor `elements` behind the first, if one begins there; 0: unknown.
  uint32_t qpn_behind_front(uint32_t elements) const {
    if (begin_ + elements >= end_) return 0;
    return word_at(begin_ + elements, offsetof(SendDescriptor, qpn));
  }
  // The elements behind the first descriptor; there are as many as waiting() says, less one.
  const RingElement* behind_front() const { return &elements_[begin_ + 1]; }
  void pop(uint32_t elements) { begin_ += elements; }

  // Makes sure that `elements` elements, the first descriptor's own among them, are in the queue.
  // Returns false if they are not in the ring. Sets `bad` when the producer's position is
  // impossible.
  bool fetch(RingEnd& ring, uint32_t elements, bool& bad) {
    if (waiting() >= elements) return true;
    std::copy(elements_.begin() + begin_, elements_.begin() + end_, elements_.begin());
    end_ -= begin_;
    begin_ = 0;
    const int taken = ring.dequeue_burst(&elements_[end_], kCapacity - end_);
    bad = taken < 0;
    if (taken > 0) end_ += static_cast<uint32_t>(taken);
    return waiting() >= elements;
  }

 private:
  uint32_t word_at(uint32_t element, size_t offset) const {
    uint32_t word = 0;
    std::memcpy(&word, elements_[element].bytes + offset, sizeof(word));
    return word;
  }

  uint32_t begin_ = 0, end_ = 0;
  std::array<RingElement, kCapacity> elements_;
};

}  // namespace hostnic
