// SPDX-License-Identifier: BSD-3-Clause
// Packets towards the port: a queue for each peer, packets built with headers alone, with a copied
// payload or with an external one, flow templates, and the way to an address. A full port leaves
// packets queued here, and whoever sends asks for room first; nothing is dropped on the in-process
// wire (rules 27, 33). Knows nothing of transports.
//
// The NIC's lcore.
#pragma once

#include <rte_branch_prediction.h>
#include <rte_mbuf.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "dataplane/nic/counters.h"
#include "dataplane/nic/egress/paths.h"
#include "dataplane/nic/limits.h"
#include "dataplane/nic/packet/bundle.h"
#include "dataplane/nic/packet/external_payload.h"
#include "dataplane/nic/packet/packet.h"
#include "dataplane/nic/packet/pools.h"
#include "dataplane/nic/port.h"
#include "dataplane/nic/qp/qp_context.h"
#include "dataplane/nic/settings.h"
#include "protocol/types.h"
#include "protocol/wire/packet.h"

namespace hostnic {

// Payload that lies in one piece of mapped memory, and may stay there.
struct MappedPayload {
  const std::byte* bytes;
  MemoryRegionEntry* region;
  PacketCount* packets;            // the count that the reference to it is added to
  DigestTable* digests = nullptr;  // where the receiver of an answer notes what it reads
};

class Egress {
 public:
  Egress(const NicSettings& settings, const MbufPools& pools, Port& port,
         PayloadReferences& references, Counters& counters, const TimeNs& now);
  ~Egress();
  Egress(const Egress&) = delete;
  Egress& operator=(const Egress&) = delete;

  // -- What the port is like.
  // Asks the port what it can do now; called at the start of each turn.
  void look_at_port() { can_ = port_.capabilities(); }
  // Packets leave with ICRC, and so with their payload behind the headers.
  bool adds_icrc() const { return adds_icrc_; }
  // Whether payload may stay in the client's memory.
  bool allows_external_payload() const { return external_payload_; }
  // Whether that of answers to READs may: it is read in the order in which the answers left only if
  // nothing holds some of them back (rule 18).
  bool allows_external_answers() const { return external_payload_ && can_.keeps_order; }
  // Whether the receiver notes what it reads of them, then (DigestTable).
  bool answers_are_noted() const { return allows_external_answers() && can_.delivers_to_readers; }
  // Whether packets towards `peer` may leave in bundles.
  bool sends_bundles(int peer) const {
    return settings_.segmentation && external_payload_ && bundles_to(peer);
  }
  // The reason why packets leave singly, for people; null: bundles are sent.
  const char* why_no_bundles() const;
  const Port& port() const { return port_; }

  // -- Room. Ask before you build.
  bool has_room(int peer) const { return queue_of(peer).has_room(); }
  bool has_room_for_ack(int peer) const {
    return queue_of(peer).count < outputs_[0].packets.size();
  }
  // How many packets of a train may leave now.
  uint32_t train_room(int peer) const {
    const uint32_t queued = queue_of(peer).count;
    return !external_payload_ || queued >= kOutputRoom ? 0 : kOutputRoom - queued;
  }

  // -- The way to an address.
  // As Paths::find(); EHOSTUNREACH if the port knows nobody there.
  int find_path(Ipv4Address ip, uint32_t name, bool connects, Path& path);
  // How to reach an address at once.
  struct Way {
    int16_t peer = 0;  // Port::peer_of()
    wire::MacAddress mac{};
  };
  // The way to an address that is looked for in that name; nothing while it is not known.
  std::optional<Way> way_to(Ipv4Address ip, uint32_t name);
  Paths& paths() { return paths_; }
  const Paths& paths() const { return paths_; }
  // Says that packets may now be for any of `peers` peers.
  void use_peers(int peers);
  // Takes an ARP packet that has arrived, and sends what it calls for.
  void receive_arp(std::span<const std::byte> frame);
  // Sends the ARP requests that are due. Returns how many.
  uint32_t ask_neighbours();

  // -- Packets are built. Null or false: no buffer.
  // Headers, and a payload that is copied behind them.
  rte_mbuf* build_small(const wire::FlowTemplate& flow, const wire::Packet& p,
                        std::span<const uint64_t> sack_words, std::span<const std::byte> payload,
                        rte_mempool* pool);
  // Builds one packet with its headers and a reference to its payload, which is not copied.
  rte_mbuf* build_external(const wire::FlowTemplate& flow, const wire::Packet& p,
                           const MappedPayload& payload, uint64_t flags = external_flag());
  // Sets the lengths of a packet whose payload lies behind its headers in one buffer, and adds the
  // ICRC if this NIC's packets have one.
  void finish_linear(rte_mbuf* packet, const wire::Packet& p, size_t header_bytes) const {
    size_t bytes = header_bytes + p.payload_bytes;
    if (adds_icrc_) {
      finish_icrc(rte_pktmbuf_mtod(packet, std::byte*), p);
      bytes += wire::pad_bytes(p.payload_bytes) + wire::kIcrcBytes;
      packet->ol_flags |= icrc_flag();
    }
    packet->data_len = static_cast<uint16_t>(bytes);
    packet->pkt_len = static_cast<uint32_t>(bytes);
  }

  // -- Packets leave.
  // The packets that wait for one peer. A caller that sends many to it keeps the
  // reference instead of looking the queue up each time.
  struct OutputQueue {
    std::array<rte_mbuf*, 2 * kBurst> packets;
    uint32_t count = 0;
    bool has_room() const { return count < kOutputRoom; }
  };
  OutputQueue& queue_of(int peer) { return outputs_[static_cast<size_t>(peer)]; }
  void emit(rte_mbuf* packet, int peer) { emit(packet, peer, queue_of(peer)); }
  void emit(rte_mbuf* packet, int peer, OutputQueue& queue) {
    packet->port = static_cast<uint16_t>(peer);
    if (unlikely(queue.count == queue.packets.size())) return drop(packet);
    queue.packets[queue.count++] = packet;
    if (unlikely(queue.count >= kBurst)) flush(peer);
  }
  // Sends the open bundle, in which packets of many queue pairs have come together.
  template <class Builder>
  void emit_open(Builder& bundle) {
    rte_mbuf* packet = bundle.take();
    if (is_bundle(packet)) counters_.add(Counter::tx_bundles);
    emit(packet, bundle.peer());
  }
  // Sends `count` packets, at least one and at most train_room(), like `p`, which is the first of
  // them and then the last. `flags`: external_flag() and what else is to be said of them.
  bool emit_train(int peer, const wire::FlowTemplate& flow, wire::Packet& p,
                  const MappedPayload& payload, uint32_t count, uint64_t flags = external_flag());
  // Sends `first` and `packets_behind` packets behind it, in one buffer. `flags` likewise.
  bool emit_bundle(int peer, const wire::FlowTemplate& flow, const wire::Packet& first,
                   uint32_t packets_behind, const BundleEnd& end, const MappedPayload& payload,
                   uint64_t flags = external_flag());
  void flush(int peer);
  void flush_all();
  // Drops what waits for the port: it may have bytes of memory that is cut off (sigbus.h).
  void drop_all();
  // Whether packets wait for the port; longest_queue() is the number in the fullest queue.
  bool anything_queued() const;
  uint32_t longest_queue() const;

  const MbufPools& pools() const { return pools_; }
  PayloadReferences& references() { return references_; }

 private:
  const OutputQueue& queue_of(int peer) const { return outputs_[static_cast<size_t>(peer)]; }
  bool bundles_to(int peer) const { return peer == kLoopbackPeer || can_.carries_bundles; }
  bool send_arp(const ArpToSend& arp);
  // Drops a packet whose sender did not ask for room first. This is rare, and so a function of its
  // own, for which callers need save no registers.
  [[gnu::noinline]] void drop(rte_mbuf* packet);

  const NicSettings& settings_;
  const MbufPools& pools_;
  Port& port_;
  PayloadReferences& references_;
  Counters& counters_;
  PortCapabilities can_;
  const bool adds_icrc_, external_payload_;
  Paths paths_;
  uint32_t output_peers_ = 1;  // how many of the peers are in use, loopback excepted
  std::array<OutputQueue, kMaxPeers + 1> outputs_;
};

}  // namespace hostnic
