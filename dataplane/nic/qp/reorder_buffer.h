// SPDX-License-Identifier: BSD-3-Clause
// The receive side of a PSN space, and where packets wait that came before those ahead of them.
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

// What waits in a PSN's place in the reorder buffer until the window reaches it. A slot is a tagged
// word: 0 nothing, an mbuf pointer (buffered packet), or a receive SN shifted left with the low bit
// set (a SEND whose last packet has been placed).
class ReorderSlot {
 public:
  ReorderSlot() = default;
  static ReorderSlot of_packet(rte_mbuf* packet) {
    return ReorderSlot(reinterpret_cast<uintptr_t>(packet));
  }
  static ReorderSlot receive_end(uint32_t sn) { return ReorderSlot(uint64_t{sn} << 1 | 1); }
  bool empty() const { return word_ == 0; }
  rte_mbuf* packet() const {
    return (word_ & 1) != 0 ? nullptr : reinterpret_cast<rte_mbuf*>(word_);
  }
  uint32_t sn() const { return static_cast<uint32_t>(word_ >> 1); }

 private:
  explicit ReorderSlot(uint64_t word) : word_(word) {}
  uint64_t word_ = 0;
};

// One PSN space's receive side: window, reorder buffer, and what was placed beyond the front.
struct ReceiveSpace {
  ReorderSlot* reorder_slots = nullptr;  // a block of the NIC's slot pool while anything waits,
                                         // indexed by PSN modulo the window
  uint32_t reorder_slots_used = 0;
  uint32_t reorder_packets = 0;  // of them: packets
  EarlyWrites early_writes;
  ReceiveWindow window;  // its bitmap last

  ReorderSlot& reorder_slot(Psn psn) { return reorder_slots[psn.value() & (window.window() - 1)]; }
  // Passes PSNs that have been received, up to `limit`, while nothing waits in any slot. Returns
  // how many.
  uint32_t pass_without_reordering(uint32_t limit) {
    if (reorder_slots != nullptr) return 0;
    const uint32_t run = std::min(window.expected_run(), limit);
    window.advance_over(run);
    return run;
  }
  ReorderSlot waiting(Psn psn) {
    return reorder_slots == nullptr ? ReorderSlot() : reorder_slot(psn);
  }
};

// Slots for the reorder buffers of all queue pairs of an lcore, and copies of packets in them. Both
// are bounded: who finds none drops the packet unset, and its sender repeats it (rule 6).
class ReorderPool {
 public:
  // `window`: slots in a block. `copies`: buffers for packets that wait. Throws std::bad_alloc.
  ReorderPool(uint32_t window, rte_mempool* copies, Counters& counters);

  // The packet waits at its PSN, as a copy. False: no room.
  bool enter(ReceiveSpace& space, Psn psn, rte_mbuf* packet);
  // False: no block is free.
  bool take_slot(ReceiveSpace& space, Psn psn, ReorderSlot slot);
  // What waited at the PSN, and is the caller's now.
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
  std::unique_ptr<ReorderSlot[], Free> slots_;  // zero pages until used
  std::vector<ReorderSlot*> free_blocks_;
  uint32_t packets_ = 0, packet_limit_ = 0, packet_limit_per_space_ = 0;
};

}  // namespace hostnic
