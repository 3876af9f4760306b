// SPDX-License-Identifier: BSD-3-Clause
// Packets of many queue pairs in one buffer: with thousands of queue pairs each message is another
// one's, and so is each ACK, and a buffer, its headers and their dispatch cost more than what
// these say. Where bundles may travel (bundle.h), packets of one kind to one peer that leave in one
// turn follow the first of them, an ordinary packet, as values behind its headers: plain ACKs
// (ack_bundle.h), WRITEs and SENDs of one packet (request_bundle.h), and READ requests
// (read_bundle.h). They are packets all the same: counted, dispatched one by one, and made into
// packets again where somebody needs them. The lcore that has the buffer.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <cstdint>
#include <utility>

#include "dataplane/nic/packet/external_payload.h"
#include "protocol/wire/hostnic/segment_train.h"

namespace hostnic {

// The counters that lie behind the headers in the buffer of a bundle of many messages; the entries
// follow.
struct BundledCount {
  uint32_t next = 0, count = 0;  // [next, count) have not been turned into packets

  uint32_t waiting() const { return count - next; }
};
template <class BundledPacket, uint32_t kMost>
struct BundledPackets : BundledCount {
  using Kind = BundledPacket;
  static constexpr uint32_t kCapacity = kMost;

  std::array<BundledPacket, kMost> all;

  bool full() const { return count == kMost; }
  const BundledPacket& pop() { return all[next++]; }
};

inline constexpr uint16_t kBundledOffset = 128;  // offset from where the headers begin
static_assert(wire::kFlowBytes + wire::kBthBytes + wire::kNethBytes + wire::kAethBytes +
                  wire::kSackEthBytes <=
              kBundledOffset);
static_assert(wire::kMaxTrainHeaderBytes <= kBundledOffset);

template <class Bundled>
Bundled& bundled_in(rte_mbuf* packet) {
  return *rte_pktmbuf_mtod_offset(packet, Bundled*, kBundledOffset);
}

// A bundle that is being put together, and the rule about which packets may follow.
template <class Bundled>
class BundleBuilder {
 public:
  bool empty() const { return packet_ == nullptr; }
  int peer() const { return peer_; }
  // Returns the buffer, which is the caller's from now on.
  rte_mbuf* take() { return std::exchange(packet_, nullptr); }

 protected:
  // Begins a bundle with a packet that was built as one of its own. `flow` has its addresses.
  void begin(rte_mbuf* packet, int peer, const wire::FlowTemplate& flow) {
    packet_ = packet;
    peer_ = peer;
    flow_ = &flow;
  }
  Bundled& bundled() { return bundled_in<Bundled>(packet_); }
  // The place for one more entry, which the caller writes. Null if the packet can't follow the
  // others.
  typename Bundled::Kind* next_place(int peer, const wire::FlowTemplate& flow);

  static constexpr size_t kTrafficClassAt = wire::kEthernetBytes + wire::ipv4_offset::kTrafficClass;
  static constexpr size_t kHopLimitAt = wire::kEthernetBytes + wire::ipv4_offset::kHopLimit;

 private:
  rte_mbuf* packet_ = nullptr;
  int peer_ = 0;
  const wire::FlowTemplate* flow_ = nullptr;
};

// The UDP source port, which bundled packets need not have in common.
inline uint16_t src_port_of(const wire::FlowTemplate& flow) {
  return wire::load_be16(flow.bytes.data() + wire::train_detail::kSrcPort);
}

template <class Bundled>
inline typename Bundled::Kind* BundleBuilder<Bundled>::next_place(int peer,
                                                                  const wire::FlowTemplate& flow) {
  if (packet_ == nullptr || peer != peer_ ||
      flow.bytes[kTrafficClassAt] != flow_->bytes[kTrafficClassAt] ||
      flow.bytes[kHopLimitAt] != flow_->bytes[kHopLimitAt])
    return nullptr;
  Bundled& all = bundled();
  if ((packet_->ol_flags & bundle_flag()) == 0) {
    all.next = all.count = 0;
    packet_->ol_flags |= bundle_flag();
  } else if (all.full()) {
    return nullptr;
  }
  return &all.all[all.count++];
}

// Keeps those packets of a bundle of packets of many messages whose bit is set in `kept`, the first
// packet's being bit 0. Returns what the buffer is then: a bundle, a packet, or null if nothing is
// kept, and the buffer freed.
rte_mbuf* keep_bundled(rte_mbuf* bundle, uint32_t kept, PayloadReferences& stock);

// Puts together a bundle of packets without payload.
template <class Bundled>
class SmallBundleBuilder : public BundleBuilder<Bundled> {
 public:
  using BundleBuilder<Bundled>::begin;
  // Adds an entry, which the caller writes in place (protocol/store_forwarding.h). Returns null if
  // the packet can't follow the others; nothing has happened then.
  typename Bundled::Kind* add(int peer, const wire::FlowTemplate& flow) {
    auto* const place = this->next_place(peer, flow);
    if (place != nullptr) place->src_port = src_port_of(flow);
    return place;
  }
};

}  // namespace hostnic
