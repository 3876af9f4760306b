// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/egress/loopback_port.h"

#include <rte_branch_prediction.h>

#include <algorithm>

#include "dataplane/nic/packet/bundle.h"
#include "dataplane/nic/packet/packet_release.h"

namespace hostnic {
namespace {

// The packets and bytes that buffers stand for; nearly all buffers are one packet. What is lost
// counts for nothing.
struct Carried {
  uint64_t packets = 0, bytes = 0;
};
Carried carried_by(rte_mbuf** packets, uint16_t count) {
  Carried carried{.packets = count};
  for (uint16_t i = 0; i < count; ++i) {
    if (unlikely(is_lost(packets[i]))) {
      --carried.packets;
    } else if (unlikely(is_bundle(packets[i]))) {
      carried.packets += packets_in(packets[i]) - 1;
      carried.bytes += wire_bytes_of(packets[i]);
    } else {
      carried.bytes += packets[i]->pkt_len;
    }
  }
  return carried;
}

}  // namespace

LoopbackPort::~LoopbackPort() {
  for (rte_mbuf* packet; own_.pop(&packet, 1) != 0;) release_packet(packet);
}

uint16_t LoopbackPort::receive(uint16_t queue, rte_mbuf** packets, uint16_t max) {
  uint16_t count = own_first_ ? own_.pop(packets, max) : uint16_t{0};
  if (count < max) {
    const auto room = static_cast<uint16_t>(max - count);
    count = static_cast<uint16_t>(count + port_.receive(queue, packets + count, room));
  }
  if (!own_.empty()) {
    const auto room = static_cast<uint16_t>(max - count);
    count = static_cast<uint16_t>(count + own_.pop(packets + count, room));
  }
  own_first_ = !own_.empty();
  if (count == 0) return 0;
  const Carried received = carried_by(packets, count);
  counters_.add(Counter::rx_packets, received.packets);
  counters_.add(Counter::rx_bytes, received.bytes);
  return count;
}

[[gnu::always_inline]] inline uint16_t LoopbackPort::hand_over(uint16_t peer, rte_mbuf** packets,
                                                               uint16_t count) {
  if (peer != kLoopbackPeer) return port_.transmit(peer, packets, count);
  uint16_t sent = 0;
  while (sent < count && own_.push(packets[sent])) ++sent;
  return sent;
}

// Records packets before they are handed over, because afterwards they are the port's, and takes
// back the records of those that it did not take.
uint16_t LoopbackPort::hand_over_captured(uint16_t peer, rte_mbuf** packets, uint16_t count) {
  uint16_t sent = 0;
  while (sent < count) {
    const auto some = static_cast<uint16_t>(std::min<uint32_t>(count - sent, kBurst));
    tap_->begin_sent(packets + sent, some);
    const uint16_t taken = hand_over(peer, packets + sent, some);
    tap_->end_sent(taken);
    sent = static_cast<uint16_t>(sent + taken);
    if (taken < some) break;
  }
  return sent;
}

uint16_t LoopbackPort::transmit(uint16_t peer, rte_mbuf** packets, uint16_t count) {
  // The packets are counted before they are sent, because afterwards they are the port's.
  const Carried offered = carried_by(packets, count);
  const uint16_t sent = likely(tap_ == nullptr) ? hand_over(peer, packets, count)
                                                : hand_over_captured(peer, packets, count);
  const Carried left = carried_by(packets + sent, static_cast<uint16_t>(count - sent));
  counters_.add(Counter::tx_bytes, offered.bytes - left.bytes);
  counters_.add(Counter::tx_packets, offered.packets - left.packets);
  return sent;
}

}  // namespace hostnic
