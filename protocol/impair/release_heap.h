// SPDX-License-Identifier: BSD-3-Clause
// Packets, or what stands for them, that wait until a time, nearest first. Never allocates beyond
// what was reserved. One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "protocol/impair/spec.h"

namespace hostnic::impair {

template <class Item>
class ReleaseHeapOf {
 public:
  void reserve(size_t packets) { heap_.reserve(packets); }
  bool empty() const { return heap_.empty(); }
  // When the first one goes; kForever if there is none.
  TimeNs first_ns() const { return heap_.empty() ? kForever : heap_.front().release_ns; }
  void insert(const Item& packet, TimeNs release_ns) {
    heap_.push_back({release_ns, next_order_++, packet});
    std::push_heap(heap_.begin(), heap_.end(), Later{});
  }
  // Takes out the first one; there must be one.
  Item take_first() {
    std::pop_heap(heap_.begin(), heap_.end(), Later{});
    const Item packet = heap_.back().packet;
    heap_.pop_back();
    return packet;
  }

 private:
  struct Timed {
    TimeNs release_ns;
    uint64_t order;  // packets of equal times go in order of insertion
    Item packet;
  };
  struct Later {
    bool operator()(const Timed& a, const Timed& b) const {
      return a.release_ns != b.release_ns ? a.release_ns > b.release_ns : a.order > b.order;
    }
  };

  std::vector<Timed> heap_;
  uint64_t next_order_ = 0;
};
using ReleaseHeap = ReleaseHeapOf<void*>;

}  // namespace hostnic::impair
