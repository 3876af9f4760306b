// SPDX-License-Identifier: BSD-3-Clause
// A single-producer single-consumer ring across two processes that do not trust each other: DPDK's
// inline rte_ring functions over a *private* ring header, with only the elements and two position
// words shared.
//
// Why private headers: the inline code re-reads mask, size and sync type from the header; a peer
// that scribbles on a shared one crashes or hangs us. Here a hostile peer can only store positions,
// and those are checked.
//
// Memory order: enqueue() stores the producer position with release after the elements; dequeue()
// loads it with acquire. The consumer position likewise in the other direction. Neither wakes
// anybody: publish, full fence, read the sleep flag.
//
// rte_ring takes elements to lie right behind its header; ours lie elsewhere, and its zero-copy
// functions say by how much they are off.
#pragma once

#include <rte_ring.h>
#include <rte_ring_elem.h>
#include <rte_ring_peek_zc.h>

#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "protocol/hostif/segment.h"

namespace hostnic {

// One side of one ring. It is not thread-safe: each side serialises its own calls, except for
// empty().
class RingEnd {
 public:
  RingEnd() = default;
  RingEnd(const RingEnd&) = delete;
  RingEnd& operator=(const RingEnd&) = delete;

  // Makes this an end of a ring: `entries` is a power of two (capacity is entries - 1), and
  // `elements` on a cache line. Returns 0 or EINVAL. The memory is the caller's. Called once.
  int init(std::byte* elements, uint32_t entries, uint32_t element_bytes, RingIndices* indices);

  // Producer: writes all of `count` elements or none. Returns false when there is no room.
  bool enqueue_bulk(const void* elements, uint32_t count);
  // Producer: enqueues one element, which write(element) fills in, in place (store_forwarding.h);
  // it has something old in it. Returns false when there is no room.
  template <class Element, class Write>
  bool enqueue(Write&& write) {
    assert(sizeof(Element) == element_bytes_);
    if (!has_room(1)) return false;
    rte_ring_zc_data place;
    if (rte_ring_enqueue_zc_bulk_elem_start(&ring_, sizeof(Element), 1, &place, nullptr) != 1)
      return false;
    write(*reinterpret_cast<Element*>(shared(place.ptr1)));
    rte_ring_enqueue_zc_elem_finish(&ring_, 1);
    indices_->producer.store(ring_.prod.tail, std::memory_order_release);
    return true;
  }
  uint32_t free_count();
  // Whether there is room for `count` elements; looks where the consumer is only if it must.
  bool has_room(uint32_t count) {
    return ring_.capacity - (ring_.prod.head - ring_.cons.tail) >= count || free_count() >= count;
  }
  // Consumer: takes up to `max` elements. Returns how many, or -1 when the peer's position is
  // impossible.
  int dequeue_burst(void* out, uint32_t max);
  // Consumer: prefetches what dequeue_burst() would take now, which the producer's core has in its
  // cache.
  void prefetch(uint32_t max) const;
  // Whether the ring is empty, for the consumer and any other thread; an element that is just being
  // taken may still count.
  bool empty() const {
    return indices_->producer.load(std::memory_order_acquire) ==
           taken_.load(std::memory_order_relaxed);
  }
  // Consumer: produced() is where the producer stands now; taken_until() says whether all before
  // such a position has been taken, except for the `waiting` elements taken last.
  uint32_t produced() const { return indices_->producer.load(std::memory_order_acquire); }
  bool taken_until(uint32_t position, uint32_t waiting = 0) const {
    return static_cast<int32_t>(ring_.cons.head - waiting - position) >= 0;
  }
  // Producer: consumed() is how far the peer says that it has consumed; drained() says whether that
  // is all that was enqueued.
  uint32_t consumed() const { return indices_->consumer.load(std::memory_order_acquire); }
  bool drained() const { return consumed() == ring_.prod.tail; }

 private:
  // The real address of the element that would lie at `behind_header` if all followed the header.
  std::byte* shared(void* behind_header) const {
    return reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(behind_header) + shift_);
  }

  rte_ring ring_{};
  uintptr_t shift_ = 0;
  // A copy of the private consumer position, for threads that only look.
  std::atomic<uint32_t> taken_{0};
  RingIndices* indices_ = nullptr;
  uint32_t element_bytes_ = 0;
};

}  // namespace hostnic
