// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/qp/reorder_buffer.h"

#include <cassert>
#include <new>

#include "dataplane/nic/limits.h"
#include "dataplane/nic/packet/packet.h"

namespace hostnic {

ReorderPool::ReorderPool(uint32_t window, rte_mempool* copies, Counters& counters)
    : copies_(copies),
      counters_(counters),
      slots_(static_cast<ReorderSlot*>(
          std::calloc(size_t{kReorderBlocks} * window, sizeof(ReorderSlot)))) {
  if (slots_ == nullptr) throw std::bad_alloc();
  for (uint32_t i = 0; i < kReorderBlocks; ++i) free_blocks_.push_back(&slots_[size_t{i} * window]);
  packet_limit_ = copies->size / 4 * 3;  // the rest is for the impairment stages
  // The limit leaves room for others while one QP misses a packet.
  packet_limit_per_space_ = std::max(packet_limit_ / 4, 1u);
}

uint32_t ReorderPool::blocks_used() const {
  return kReorderBlocks - static_cast<uint32_t>(free_blocks_.size());
}

bool ReorderPool::take_slot(ReceiveSpace& space, Psn psn, ReorderSlot slot) {
  if (space.reorder_slots == nullptr) {
    if (free_blocks_.empty()) return false;
    space.reorder_slots = free_blocks_.back();
    free_blocks_.pop_back();
  }
  // A packet waits only ahead of the expected PSN, within the window, and at its own PSN alone.
  assert(static_cast<uint32_t>(distance(space.window.expected(), psn)) < space.window.window());
  assert(space.reorder_slot(psn).empty());
  space.reorder_slot(psn) = slot;
  ++space.reorder_slots_used;
  return true;
}

ReorderSlot ReorderPool::release_slot(ReceiveSpace& space, Psn psn) {
  if (space.reorder_slots == nullptr) return {};
  ReorderSlot& place = space.reorder_slot(psn);
  const ReorderSlot slot = place;
  if (slot.empty()) return slot;
  place = ReorderSlot();
  if (slot.packet() != nullptr) {
    --packets_;
    --space.reorder_packets;
  }
  if (--space.reorder_slots_used == 0) {
    free_blocks_.push_back(space.reorder_slots);
    space.reorder_slots = nullptr;
  }
  return slot;
}

bool ReorderPool::enter(ReceiveSpace& space, Psn psn, rte_mbuf* packet) {
  const bool within_limits =
      packets_ < packet_limit_ && space.reorder_packets < packet_limit_per_space_;
  rte_mbuf* copy = within_limits ? copy_packet(packet, copies_) : nullptr;
  if (copy == nullptr || !take_slot(space, psn, ReorderSlot::of_packet(copy))) {
    counters_.add(Counter::reorder_full);
    rte_pktmbuf_free(copy);
    return false;
  }
  ++packets_;
  ++space.reorder_packets;
  counters_.add(Counter::reorder_buffered);
  return true;
}

void ReorderPool::drop(ReceiveSpace& space) {
  for (uint32_t i = 0; space.reorder_slots != nullptr && i < space.window.window(); ++i)
    rte_pktmbuf_free(release_slot(space, Psn(i)).packet());
}

}  // namespace hostnic
