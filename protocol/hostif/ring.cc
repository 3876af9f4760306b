// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/hostif/ring.h"

#include <errno.h>
#include <rte_ring_peek_zc.h>

#include <algorithm>
#include <cstring>

#include "protocol/prefetch.h"

namespace hostnic {
int RingEnd::init(std::byte* elements, uint32_t entries, uint32_t element_bytes,
                  RingIndices* indices) {
  if (entries < 2 || (entries & (entries - 1)) != 0) return EINVAL;
  if (reinterpret_cast<uintptr_t>(elements) % 64 != 0) return EINVAL;
  // The few fields that the single-producer single-consumer inline functions read are set here,
  // because rte_ring_init() lives in librte_ring, which the preloaded library must not depend on.
  ring_.flags = RING_F_SP_ENQ | RING_F_SC_DEQ;
  ring_.prod.sync_type = RTE_RING_SYNC_ST;
  ring_.cons.sync_type = RTE_RING_SYNC_ST;
  ring_.size = entries;
  ring_.mask = entries - 1;
  ring_.capacity = entries - 1;
  shift_ = reinterpret_cast<uintptr_t>(elements) - reinterpret_cast<uintptr_t>(&ring_ + 1);
  indices_ = indices;
  element_bytes_ = element_bytes;
  return 0;
}

bool RingEnd::enqueue_bulk(const void* elements, uint32_t count) {
  if (count == 0) return true;
  if (!has_room(count)) return false;
  rte_ring_zc_data place{};
  if (rte_ring_enqueue_zc_bulk_elem_start(&ring_, element_bytes_, count, &place, nullptr) != count)
    return false;
  const auto* from = static_cast<const std::byte*>(elements);
  const size_t first_bytes = size_t{place.n1} * element_bytes_;
  std::memcpy(shared(place.ptr1), from, first_bytes);
  if (place.ptr2 != nullptr)
    std::memcpy(shared(place.ptr2), from + first_bytes,
                size_t{count} * element_bytes_ - first_bytes);
  rte_ring_enqueue_zc_elem_finish(&ring_, count);
  indices_->producer.store(ring_.prod.tail, std::memory_order_release);
  return true;
}

uint32_t RingEnd::free_count() {
  const uint32_t consumed = indices_->consumer.load(std::memory_order_acquire);
  // A position outside [what we last saw, what we produced] can't be true; keeping the old one only
  // makes the ring look full.
  if (consumed - ring_.cons.tail <= ring_.prod.head - ring_.cons.tail) ring_.cons.tail = consumed;
  return ring_.capacity - (ring_.prod.head - ring_.cons.tail);
}

void RingEnd::prefetch(uint32_t max) const {
  const uint32_t first = ring_.cons.head;
  const uint32_t produced = indices_->producer.load(std::memory_order_relaxed) - first;
  const auto* elements =
      reinterpret_cast<const std::byte*>(reinterpret_cast<uintptr_t>(&ring_ + 1) + shift_);
  for (uint32_t i = 0; i < std::min(produced, max); ++i)
    prefetch_line(elements + size_t{(first + i) & ring_.mask} * element_bytes_);
}

int RingEnd::dequeue_burst(void* out, uint32_t max) {
  const uint32_t produced = indices_->producer.load(std::memory_order_acquire);
  if (produced - ring_.cons.head > ring_.capacity) return -1;
  ring_.prod.tail = produced;
  rte_ring_zc_data place{};
  const unsigned count =
      rte_ring_dequeue_zc_burst_elem_start(&ring_, element_bytes_, max, &place, nullptr);
  if (count != 0) {
    auto* to = static_cast<std::byte*>(out);
    const size_t first_bytes = size_t{place.n1} * element_bytes_;
    std::memcpy(to, shared(place.ptr1), first_bytes);
    if (place.ptr2 != nullptr)
      std::memcpy(to + first_bytes, shared(place.ptr2),
                  size_t{count} * element_bytes_ - first_bytes);
    rte_ring_dequeue_zc_elem_finish(&ring_, count);
    taken_.store(ring_.cons.tail, std::memory_order_relaxed);
    indices_->consumer.store(ring_.cons.tail, std::memory_order_release);
  }
  return static_cast<int>(count);
}

}  // namespace hostnic
