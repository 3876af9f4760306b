// SPDX-License-Identifier: BSD-3-Clause
// The receive side of a PSN space, and where packets wait that came out of order and must not be
// placed or executed before all in front of them.
#pragma once

#include <rte_mbuf.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "dataplane/nic/counters.h"
#include "protocol/transport/early_writes.h"
#include "protocol/transport/receive_window.h"

namespace hostnic {

// What waits in a PSN's place in the reorder buffer until the window reaches that PSN. A slot is a
// tagged word: 0 nothing, an mbuf pointer (buffered packet), the same with the second bit set (its
// payload has been placed), or a receive SN shifted left with the low bit set (a SEND whose last
// packet has been placed).
class ReorderSlot {
 public:
  ReorderSlot() = default;
  static ReorderSlot of_packet(rte_mbuf* packet) {
    return ReorderSlot(reinterpret_cast<uintptr_t>(packet));
  }
  static ReorderSlot receive_end(uint32_t sn) { return ReorderSlot(uint64_t{sn} << 1 | 1); }
  bool empty() const { return word_ == 0; }
  rte_mbuf* packet() const {
    return (word_ & 1) != 0 ? nullptr : reinterpret_cast<rte_mbuf*>(word_ & ~kPlaced);
  }
  // Whether the payload of the packet has been placed.
  bool is_placed() const { return (word_ & 1) == 0 && (word_ & kPlaced) != 0; }
  void note_placed() { word_ |= kPlaced; }
  uint32_t sn() const { return static_cast<uint32_t>(word_ >> 1); }

 private:
  static constexpr uint64_t kPlaced = 2;
  explicit ReorderSlot(uint64_t word) : word_(word) {}
  uint64_t word_ = 0;
};

// The receive side of one PSN space: window, reorder buffer, and what was placed beyond the
// expected PSN.
struct ReceiveSpace {
  ReorderSlot* reorder_slots = nullptr;  // a block of the NIC's slot pool while anything waits,
                                         // indexed by PSN modulo the window
  uint32_t reorder_slots_used = 0;
  uint32_t reorder_packets = 0;  // how many of the slots hold packets
  EarlyWrites early_writes;
  ReceiveWindow window;  // its bitmap is its last member

  ReorderSlot& reorder_slot(Psn psn) { return reorder_slots[psn.value() & (window.window() - 1)]; }
  // Passes PSNs that have been received and have nothing that waits in a slot, up to 64 in a row.
  // Returns how many.
  uint32_t pass_placed() {
    uint32_t run = window.expected_run();
    if (reorder_slots != nullptr) {
      uint32_t placed = 0;
      while (placed < run && reorder_slot(window.expected() + placed).empty()) ++placed;
      run = placed;
    }
    window.advance_over(run);
    return run;
  }
  ReorderSlot waiting(Psn psn) {
    return reorder_slots == nullptr ? ReorderSlot() : reorder_slot(psn);
  }
};

// Slots for the reorder buffers of all queue pairs of an lcore, and copies of packets in them. Both
// are bounded: who finds none drops the packet, its bit unset, and its sender repeats it (rule 6).
class ReorderPool {
 public:
  // Makes a pool with blocks of `window` slots. `copies` has the buffers for packets that wait.
  // Throws std::bad_alloc.
  ReorderPool(uint32_t window, rte_mempool* copies, Counters& counters);

  // Lets a copy of the packet wait at its PSN. Returns false if there is no room.
  bool enter(ReceiveSpace& space, Psn psn, rte_mbuf* packet);
  // Puts `slot` in the PSN's place; returns false if no block is free.
  bool take_slot(ReceiveSpace& space, Psn psn, ReorderSlot slot);
  // Returns what waited at the PSN, which is the caller's from now on.
  ReorderSlot release_slot(ReceiveSpace& space, Psn psn);
  void drop(ReceiveSpace& space);

  uint32_t packets() const { return packets_; }
  uint32_t packet_limit() const { return packet_limit_; }
  uint32_t blocks_used() const;

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  rte_mempool* copies_;
  Counters& counters_;
  std::unique_ptr<ReorderSlot[], Free> slots_;  // pages are zero until used
  std::vector<ReorderSlot*> free_blocks_;
  uint32_t packets_ = 0, packet_limit_ = 0, packet_limit_per_space_ = 0;
};

}  // namespace hostnic
