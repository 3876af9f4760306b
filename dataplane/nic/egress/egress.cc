// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/egress/egress.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "dataplane/nic/packet/packet_release.h"
#include "protocol/wire/hostnic/segment_train.h"
#include "protocol/wire/multicast.h"

namespace hostnic {

static_assert(Neighbours::kCapacity <= INT16_MAX);

namespace {

constexpr wire::MacAddress kToAll = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

}  // namespace

Egress::Egress(const NicSettings& settings, const MbufPools& pools, ImpairedPort& port,
               PayloadReferences& references, Counters& counters, const TimeNs& now)
    : settings_(settings),
      pools_(pools),
      port_(port),
      references_(references),
      counters_(counters),
      now_(now),
      adds_icrc_(port.capabilities().needs_icrc ||
                 (settings.always_icrc && !port.capabilities().adds_icrc)),
      needs_arp_(port.capabilities().needs_arp),
      external_payload_(port.capabilities().allows_external_payload && !adds_icrc_) {}

Egress::~Egress() {
  for (OutputQueue& queue : outputs_)
    for (uint32_t i = 0; i < queue.count; ++i) release_packet(queue.packets[i], references_);
}

const char* Egress::why_no_bundles() const {
  if (!settings_.segmentation) return "as configured";
  if (!port_.capabilities().carries_bundles) return "the port sends packets";
  return adds_icrc_ ? "ICRC" : nullptr;
}

// ---- queues

void Egress::drop(rte_mbuf* packet) {
  assert(!"a packet without room in its queue");
  release_packet(packet, references_);
}

void Egress::flush(int peer) {
  OutputQueue& queue = queue_of(peer);
  uint32_t sent = 0;
  while (sent < queue.count) {
    const uint16_t n = port_.transmit(static_cast<uint16_t>(peer), queue.packets.data() + sent,
                                      static_cast<uint16_t>(queue.count - sent));
    if (n == 0) break;
    sent += n;
  }
  std::copy(queue.packets.begin() + sent, queue.packets.begin() + queue.count,
            queue.packets.begin());
  queue.count -= sent;
}

void Egress::flush_all() {
  for (uint32_t peer = 0; peer < output_peers_; ++peer)
    if (outputs_[peer].count != 0) flush(static_cast<int>(peer));
  if (outputs_[kLoopbackPeer].count != 0) flush(kLoopbackPeer);
}

bool Egress::anything_queued() const {
  const auto used = std::span(outputs_).first(output_peers_);
  return outputs_[kLoopbackPeer].count != 0 ||
         std::ranges::any_of(used, [](const OutputQueue& queue) { return queue.count != 0; });
}

uint32_t Egress::longest_queue() const {
  return std::ranges::max(outputs_, {}, &OutputQueue::count).count;
}

// ---- packets

rte_mbuf* Egress::build_small(const wire::FlowTemplate& flow, const wire::Packet& p,
                              std::span<const uint64_t> sack_words,
                              std::span<const std::byte> payload, rte_mempool* pool) {
  assert(p.payload_bytes == payload.size());
  rte_mbuf* packet = rte_pktmbuf_alloc(pool);
  if (packet == nullptr) return nullptr;
  auto* frame = rte_pktmbuf_mtod(packet, std::byte*);
  const size_t header_bytes =
      wire::build(flow, p, adds_icrc_, sack_words, {frame, wire::kMaxHeaderBytes});
  if (!payload.empty()) std::memcpy(frame + header_bytes, payload.data(), payload.size());
  finish_linear(packet, p, header_bytes);
  return packet;
}

void Egress::make_flows(QpContext& qp, const wire::MacAddress& destination) {
  // Both ends of a flow use the requester's tag: the tag expected on answers is the one that our
  // requests carry.
  const Ipv4Address peer{qp.dest_ip};
  // Senders of RC follow marks, so routers may mark their packets (rule 27, congestion window);
  // senders of UC never hear of marks. ACKs ride in the same flow and are marked in vain.
  const uint8_t ecn = qp.type == QpType::kRc ? wire::kEcnCapable : uint8_t{0};
  const auto traffic_class = static_cast<uint8_t>((qp.traffic_class & ~wire::kEcnMask) | ecn);
  qp.request_flow =
      wire::make_flow_template(settings_.mac, destination, Ipv4Address{qp.source_ip}, peer,
                               qp.incoming_response_tag, traffic_class, qp.hop_limit);
  qp.response_flow =
      wire::make_flow_template(settings_.mac, destination, Ipv4Address{qp.source_ip}, peer,
                               qp.incoming_request_tag, traffic_class, qp.hop_limit);
}

// Sends `count` packets, at least one and at most train_room(), like `p`, which is the first of
// them and then the last. Returns false if there are no buffers.
bool Egress::emit_train(int peer, const wire::FlowTemplate& flow, wire::Packet& p,
                        const MappedPayload& payload, uint32_t count, uint64_t flags) {
  OutputQueue& queue = outputs_[static_cast<size_t>(peer)];
  rte_mbuf** const train = queue.packets.data() + queue.count;
  if (rte_pktmbuf_alloc_bulk(pools_.header, train, count) != 0) return false;
  alignas(16) std::array<std::byte, wire::kMaxHeaderBytes> headers;
  const auto header_bytes = static_cast<uint32_t>(wire::build(flow, p, false, {}, headers));
  static_assert(kOutputRoom <= PayloadReferences::kStock);
  references_.acquire(*payload.region, *payload.packets, count);
  const std::byte* bytes = payload.bytes;
  for (uint32_t i = 0; i < count; ++i, bytes += p.payload_bytes) {
    // The headers that are copied again and again are not written in between: a wide load behind a
    // narrow store waits for it.
    auto* frame = rte_pktmbuf_mtod(train[i], std::byte*);
    std::memcpy(frame, headers.data(), wire::kMaxTrainHeaderBytes);
    if (i != 0) wire::step(p, {frame, wire::kMaxTrainHeaderBytes});
    attach_payload(*train[i], header_bytes, p.payload_bytes,
                   {bytes, payload.region, payload.packets, payload.digests}, flags);
    train[i]->port = static_cast<uint16_t>(peer);
  }
  queue.count += count;
  if (queue.count >= kBurst) flush(peer);
  return true;
}

// Builds one packet with its headers and a reference to its payload, which is not copied. Returns
// null if there is no buffer.
rte_mbuf* Egress::build_external(const wire::FlowTemplate& flow, const wire::Packet& p,
                                 const MappedPayload& payload, uint64_t flags) {
  rte_mbuf* packet = rte_pktmbuf_alloc(pools_.header);
  if (packet == nullptr) return nullptr;
  const std::span<std::byte> frame(rte_pktmbuf_mtod(packet, std::byte*), wire::kMaxHeaderBytes);
  const size_t header_bytes = wire::build(flow, p, false, {}, frame);
  references_.acquire(*payload.region, *payload.packets, 1);
  attach_payload(*packet, header_bytes, p.payload_bytes,
                 {payload.bytes, payload.region, payload.packets, payload.digests}, flags);
  return packet;
}

bool Egress::emit_bundle(int peer, const wire::FlowTemplate& flow, const wire::Packet& first,
                         uint32_t packets_behind, const BundleEnd& end,
                         const MappedPayload& payload, uint64_t flags) {
  rte_mbuf* packet = build_external(flow, first, payload, flags);
  if (packet == nullptr) return false;
  make_bundle(*packet, packets_behind, end);
  counters_.add(Counter::tx_bundles);
  emit(packet, peer);
  return true;
}

// ---- the way to an address

void Egress::use_peers(int peers) {
  output_peers_ = std::max(output_peers_, static_cast<uint32_t>(peers));
}

Ipv4Address Egress::next_hop(Ipv4Address destination) const {
  const bool on_link = same_network(destination, settings_.ip, settings_.prefix_length);
  return on_link || raw(settings_.gateway) == 0 ? destination : settings_.gateway;
}

// The index of the neighbour's entry, or kNobody or kFull.
int Egress::find_neighbour(Ipv4Address ip, uint32_t client, bool connects) {
  const int index = neighbours_.find_or_add(next_hop(ip), client, now_, connects);
  if (index <= Neighbours::kNobody) counters_.add(Counter::neighbours_refused);
  return index;
}

// Makes the flows of a queue pair whose neighbour has another MAC address now, or has no entry any
// more. Returns false if its address is not known yet.
bool Egress::make_flows_anew(QpContext& qp) {
  const Ipv4Address ip{qp.dest_ip};
  if (neighbours_.entry(qp.neighbour).ip != next_hop(ip)) {
    const int index = find_neighbour(ip, qp.client_id, true);
    qp.neighbour = static_cast<int16_t>(std::max(index, Neighbours::kNobody));
  }
  const Neighbours::Entry& neighbour = neighbours_.entry(qp.neighbour);
  if (neighbour.generation == 0) return false;
  if (qp.flows_made_for != neighbour.generation) make_flows(qp, neighbour.mac);
  qp.flows_made_for = neighbour.generation;
  return true;
}

int Egress::find_path(Ipv4Address ip, uint32_t client, bool connects, Path& path) {
  const int peer = port_.peer_of(raw(ip));
  if (peer < 0 || peer > kLoopbackPeer) return EHOSTUNREACH;
  path = {.peer = static_cast<int16_t>(peer), .neighbour = -1};
  if (peer == kLoopbackPeer) return 0;
  use_peers(peer + 1);
  if (!needs_arp_) return 0;
  const int index = find_neighbour(ip, client, connects);
  path.neighbour = static_cast<int16_t>(std::max(index, Neighbours::kNobody));
  return index < 0 ? ENOMEM : 0;
}

wire::MacAddress Egress::mac_without_arp(Ipv4Address ip) const {
  if (wire::is_multicast(ip)) return wire::multicast_mac(ip);
  if (settings_.is_own(ip)) return settings_.mac;
  return {0x02,
          0x00,
          static_cast<uint8_t>(raw(ip) >> 24),
          static_cast<uint8_t>(raw(ip) >> 16),
          static_cast<uint8_t>(raw(ip) >> 8),
          static_cast<uint8_t>(raw(ip))};
}

// Sends an ARP message to a host, or to all. Returns false if there was no room: whoever asks
// repeats it.
bool Egress::send_arp(const wire::Arp& arp, const wire::MacAddress& to) {
  if (!has_room_for_ack(0)) return false;
  rte_mbuf* packet = rte_pktmbuf_alloc(pools_.control);
  if (packet == nullptr) return false;
  constexpr size_t kMinFrame = 60;
  auto* frame = rte_pktmbuf_mtod(packet, std::byte*);
  std::memset(frame, 0, kMinFrame);
  wire::build_arp(arp, {frame, kMinFrame});
  std::memcpy(frame, to.data(), to.size());
  packet->data_len = kMinFrame;
  packet->pkt_len = kMinFrame;
  emit(packet, 0);
  return true;
}

wire::MacAddress Egress::conflicting_mac() const {
  const uint64_t bytes = conflicting_mac_.load(std::memory_order_relaxed);
  wire::MacAddress mac;
  for (size_t i = 0; i < mac.size(); ++i) mac[i] = static_cast<uint8_t>(bytes >> (40 - 8 * i));
  return mac;
}

// Notes that another host says that it has this NIC's address, and says now and then whose it is
// (RFC 5227, 2.4 c), so that peers that have believed it learn better.
void Egress::note_conflict(const wire::MacAddress& mac) {
  constexpr uint64_t kDefendNs = 10'000'000'000;
  uint64_t bytes = 0;
  for (const uint8_t byte : mac) bytes = bytes << 8 | byte;
  conflicting_mac_.store(bytes, std::memory_order_relaxed);
  counters_.add(Counter::duplicate_address);
  if (now_ < next_defence_ns_) return;
  if (send_arp(wire::make_arp_request(settings_.mac, settings_.ip, settings_.ip), kToAll))
    next_defence_ns_ = now_ + kDefendNs;
}

void Egress::receive_arp(std::span<const std::byte> frame) {
  if (!needs_arp_) return;
  const auto arp = wire::parse_arp(frame);
  if (!arp) return;
  if (arp->sender_ip == settings_.ip) {
    if (arp->sender_mac != settings_.mac) note_conflict(arp->sender_mac);
    return;
  }
  neighbours_.learn(arp->sender_ip, arp->sender_mac, now_);
  if (arp->operation == wire::ArpOperation::kRequest && arp->target_ip == settings_.ip)
    send_arp(wire::make_arp_reply(settings_.mac, *arp), arp->sender_mac);
}

uint32_t Egress::ask_neighbours() {
  if (!needs_arp_) return 0;
  // Finding who is due takes microseconds while many are.
  constexpr uint32_t kRequestsPerTurn = 8;
  uint32_t asked = 0;
  for (; asked < kRequestsPerTurn; ++asked) {
    const Neighbours::Request due = neighbours_.due(now_);
    if (due.index == Neighbours::kNobody) break;
    const Neighbours::Entry& entry = neighbours_.entry(due.index);
    counters_.add(due.to_all ? Counter::arp_broadcasts : Counter::arp_probes);
    send_arp(wire::make_arp_request(settings_.mac, settings_.ip, entry.ip),
             due.to_all ? kToAll : entry.mac);
  }
  return asked;
}

}  // namespace hostnic
