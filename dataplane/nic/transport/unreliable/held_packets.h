// SPDX-License-Identifier: BSD-3-Clause
// Packets of unreliable queue pairs whose memory could not be written when they arrived: a transfer
// by the mem fd was not done, or the client's mappings were just changing. Nobody sends them again,
// so copies wait here, in the order of their arrival for each queue pair.
//
// The NIC's lcore. Bounded: a packet that finds no room is lost.
#pragma once

#include <rte_mbuf.h>

#include <cstddef>
#include <vector>

#include "dataplane/nic/packet/packet.h"
#include "dataplane/nic/qp/qp_context.h"

namespace hostnic {

class HeldPackets {
 public:
  explicit HeldPackets(rte_mempool* copies) : copies_(copies) { held_.reserve(kMost); }
  ~HeldPackets() {
    for (const Held& held : held_) rte_pktmbuf_free(held.packet);
  }
  HeldPackets(const HeldPackets&) = delete;
  HeldPackets& operator=(const HeldPackets&) = delete;

  bool empty() const { return held_.empty(); }
  // Holds a copy of the packet. `begun`: what must be done once for a packet has been done. Returns
  // false if there is no room.
  bool add(QpContext& qp, rte_mbuf* packet, bool begun) {
    if (held_.size() == kMost || qp.held_packets == kMostOfOne) return false;
    rte_mbuf* const copy = copy_packet(packet, copies_);
    if (copy == nullptr) return false;
    held_.push_back({&qp, copy, begun});
    ++qp.held_packets;
    return true;
  }
  // Calls retry(qp, packet, begun) for the oldest packet of each queue pair, and for the next ones
  // as long as that returns true: they are done with. Returns how many those were.
  template <class Retry>
  uint32_t retry(Retry&& retry) {
    size_t kept = 0;
    for (size_t i = 0; i < held_.size(); ++i) {
      Held held = held_[i];
      if (!held.qp->held_packets_wait && retry(*held.qp, held.packet, held.begun)) {
        rte_pktmbuf_free(held.packet);
        --held.qp->held_packets;
        continue;
      }
      held.qp->held_packets_wait = true;
      held_[kept++] = held;
    }
    const auto done = static_cast<uint32_t>(held_.size() - kept);
    held_.resize(kept);
    for (const Held& held : held_) held.qp->held_packets_wait = false;
    return done;
  }
  void drop(QpContext& qp) {
    if (qp.held_packets == 0) return;
    std::erase_if(held_, [&qp](const Held& held) {
      if (held.qp != &qp) return false;
      rte_pktmbuf_free(held.packet);
      return true;
    });
    qp.held_packets = 0;
  }

 private:
  static constexpr size_t kMost = 1024, kMostOfOne = 256;
  struct Held {
    QpContext* qp = nullptr;
    rte_mbuf* packet = nullptr;
    bool begun = false;
  };
  rte_mempool* copies_;
  std::vector<Held> held_;
};

}  // namespace hostnic
