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
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/nic/counters.h"
#include "dataplane/nic/egress/impaired_port.h"
#include "dataplane/nic/egress/neighbours.h"
#include "dataplane/nic/limits.h"
#include "dataplane/nic/packet/bundle.h"
#include "dataplane/nic/packet/external_payload.h"
#include "dataplane/nic/packet/packet.h"
#include "dataplane/nic/packet/pools.h"
#include "dataplane/nic/qp/qp_context.h"
#include "dataplane/nic/settings.h"
#include "protocol/types.h"
#include "protocol/wire/arp.h"
#include "protocol/wire/packet.h"

namespace hostnic {

// Payload that lies in one piece of mapped memory, and may stay there.
struct MappedPayload {
  const std::byte* bytes;
  MemoryRegionEntry* region;
  PacketCount* packets;            // the count that the reference to it is added to
  DigestTable* digests = nullptr;  // where the receiver of an answer notes what it reads
};

// The way by which packets to an address leave.
struct Path {
  int16_t peer = 0;        // Port::peer_of()
  int16_t neighbour = -1;  // index of the entry that the MAC address is asked for by
};

class Egress {
 public:
  Egress(const NicSettings& settings, const MbufPools& pools, ImpairedPort& port,
         PayloadReferences& references, Counters& counters, const TimeNs& now);
  ~Egress();
  Egress(const Egress&) = delete;
  Egress& operator=(const Egress&) = delete;

  // -- What the port is like.
  // Packets leave with ICRC, and so with their payload behind the headers.
  bool adds_icrc() const { return adds_icrc_; }
  bool needs_arp() const { return needs_arp_; }
  // Whether payload may stay in the client's memory.
  bool allows_external_payload() const { return external_payload_; }
  // Whether that of answers to READs may: it is read in the order in which the answers left only if
  // nothing holds some of them back (rule 18).
  bool allows_external_answers() const { return external_payload_ && !port_.holds_back_sent(); }
  // Whether the receiver notes what it reads of them, then (DigestTable).
  bool answers_are_noted() const {
    return allows_external_answers() && port_.capabilities().delivers_to_readers;
  }
  // Whether packets towards `peer` may leave in bundles.
  bool sends_bundles(int peer) const {
    return settings_.segmentation && external_payload_ && bundles_to(peer);
  }
  // The reason why packets leave singly, for people; null: bundles are sent.
  const char* why_no_bundles() const;
  int peers() const { return port_.peers(); }
  int own_peer() const { return port_.own_peer(); }
  bool backlog() const { return port_.backlog(); }

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
  // Finds it in a client's name, or one of Neighbours' own, for a datagram or a connection. Returns
  // 0, EHOSTUNREACH or ENOMEM (all neighbours are in use).
  int find_path(Ipv4Address ip, uint32_t client, bool connects, Path& path);
  // Whether somebody has been asked for the path's MAC address, and may still answer.
  bool is_being_found(const Path& path) const {
    return path.neighbour > Neighbours::kNobody && neighbours_.is_on_trial(path.neighbour, now_);
  }
  // The MAC address for packets to a group, to this NIC itself, or where nobody looks at it, so
  // that captures look right all the same.
  wire::MacAddress mac_without_arp(Ipv4Address ip) const;
  const Neighbours::Entry& neighbour(int index) const { return neighbours_.entry(index); }
  const Neighbours& neighbours() const { return neighbours_; }
  // Says that a packet to the neighbour leaves; returns the generation of its entry, which changes
  // with its MAC address, and when the entry becomes another address's.
  uint32_t use_neighbour(int index) { return neighbours_.use(index, now_); }
  // Says that packets may now be for any of `peers` peers.
  void use_peers(int peers);
  // Whether the QP's packets can be addressed. Where there is ARP the neighbour's MAC must be
  // known, and may change.
  bool prepare_flows(QpContext& qp) {
    if (likely(qp.neighbour < 0)) return qp.flows_made_for != 0;
    const uint32_t generation = neighbours_.use(qp.neighbour, now_);
    if (likely(generation != 0 && generation == qp.flows_made_for)) return true;
    return make_flows_anew(qp);
  }
  void make_flows(QpContext& qp, const wire::MacAddress& destination);
  // Says that settings.mac has changed.
  void own_mac_changed() { neighbours_.own_mac_changed(now_); }
  // Says that a packet to this peer is repeated.
  void doubt_neighbour(const QpContext& qp) {
    if (qp.neighbour >= 0) neighbours_.doubt(qp.neighbour, now_);
  }
  void receive_arp(std::span<const std::byte> frame);
  // The MAC address by which another host was last heard to have this NIC's address. Any thread.
  wire::MacAddress conflicting_mac() const;
  // Sends the ARP requests that are due. Returns how many.
  uint32_t ask_neighbours();
  TimeNs next_deadline_ns() const {
    return needs_arp_ ? neighbours_.next_deadline_ns() : UINT64_MAX;
  }

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
  // The packets that wait for one peer. Who sends many to it keeps the queue.
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
  // Whether packets wait for the port; longest_queue() is the number in the fullest queue.
  bool anything_queued() const;
  uint32_t longest_queue() const;

  const MbufPools& pools() const { return pools_; }
  PayloadReferences& references() { return references_; }

 private:
  const OutputQueue& queue_of(int peer) const { return outputs_[static_cast<size_t>(peer)]; }
  bool bundles_to(int peer) const {
    return peer == kLoopbackPeer || port_.capabilities().carries_bundles;
  }
  Ipv4Address next_hop(Ipv4Address destination) const;
  int find_neighbour(Ipv4Address ip, uint32_t client, bool connects);
  [[gnu::noinline]] bool make_flows_anew(QpContext& qp);
  bool send_arp(const wire::Arp& arp, const wire::MacAddress& to);
  void note_conflict(const wire::MacAddress& mac);
  // Drops a packet whose sender did not ask for room first. This is rare, and so a function of its
  // own, for which callers need save no registers.
  [[gnu::noinline]] void drop(rte_mbuf* packet);

  const NicSettings& settings_;
  const MbufPools& pools_;
  ImpairedPort& port_;
  PayloadReferences& references_;
  Counters& counters_;
  const TimeNs& now_;
  const bool adds_icrc_, needs_arp_, external_payload_;
  Neighbours neighbours_;
  std::atomic<uint64_t> conflicting_mac_{0};  // the bytes of its MAC address, the first the highest
  TimeNs next_defence_ns_ = 0;
  uint32_t output_peers_ = 1;  // how many of the peers are in use, loopback excepted
  std::array<OutputQueue, kMaxPeers + 1> outputs_;
};

}  // namespace hostnic
