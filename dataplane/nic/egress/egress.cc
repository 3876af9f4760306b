// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/egress/egress.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "dataplane/memory/sigbus.h"
#include "dataplane/nic/packet/packet_release.h"
#include "protocol/wire/hostnic/segment_train.h"
#include "protocol/wire/multicast.h"

namespace hostnic {

Egress::Egress(const NicSettings& settings, const MbufPools& pools, Port& port,
               PayloadReferences& references, Counters& counters, const TimeNs& now)
    : settings_(settings),
      pools_(pools),
      port_(port),
      references_(references),
      counters_(counters),
      can_(port.capabilities()),
      adds_icrc_(can_.needs_icrc || (settings.always_icrc && !can_.adds_icrc)),
      external_payload_(can_.allows_external_payload && !adds_icrc_),
      paths_(settings, can_.needs_arp, counters, now) {}

Egress::~Egress() {
  for (OutputQueue& queue : outputs_)
    for (uint32_t i = 0; i < queue.count; ++i) release_packet(queue.packets[i], references_);
}

const char* Egress::why_no_bundles() const {
  if (!settings_.segmentation) return "as configured";
  if (!can_.carries_bundles) return "the port sends packets";
  return adds_icrc_ ? "ICRC" : nullptr;
}

// ---- queues

void Egress::drop(rte_mbuf* packet) {
  assert(!"a packet without room in its queue");
  release_packet(packet, references_);
}

void Egress::drop_all() {
  for (OutputQueue& queue : outputs_) {
    for (uint32_t i = 0; i < queue.count; ++i) release_packet(queue.packets[i], references_);
    queue.count = 0;
  }
}

void Egress::flush(int peer) {
  if (unlikely(has_faulted())) return drop_all();
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

int Egress::find_path(Ipv4Address ip, uint32_t name, bool connects, Path& path) {
  const int peer = port_.peer_of(raw(ip));
  if (peer < 0 || peer > kLoopbackPeer) return EHOSTUNREACH;
  path = {.peer = static_cast<int16_t>(peer), .neighbour = -1};
  if (peer == kLoopbackPeer) return 0;
  use_peers(peer + 1);
  return paths_.find(ip, name, connects, path);
}

std::optional<Egress::Way> Egress::way_to(Ipv4Address ip, uint32_t name) {
  Path path;
  if (find_path(ip, name, false, path) != 0) return std::nullopt;
  if (path.neighbour < 0) return Way{path.peer, paths_.mac_without_arp(ip)};
  if (paths_.use_neighbour(path.neighbour) == 0) return std::nullopt;
  return Way{path.peer, paths_.neighbour(path.neighbour).mac};
}

// Returns false if there was no room: whoever asks repeats it.
bool Egress::send_arp(const ArpToSend& arp) {
  if (!has_room_for_ack(0)) return false;
  rte_mbuf* packet = rte_pktmbuf_alloc(pools_.control);
  if (packet == nullptr) return false;
  constexpr size_t kMinFrame = 60;
  auto* frame = rte_pktmbuf_mtod(packet, std::byte*);
  std::memset(frame, 0, kMinFrame);
  wire::build_arp(arp.message, {frame, kMinFrame});
  std::memcpy(frame, arp.to.data(), arp.to.size());
  packet->data_len = kMinFrame;
  packet->pkt_len = kMinFrame;
  emit(packet, 0);
  return true;
}

void Egress::receive_arp(std::span<const std::byte> frame) {
  const std::optional<ArpToSend> answer = paths_.receive_arp(frame);
  if (answer && send_arp(*answer) && answer->defends) paths_.defended();
}

uint32_t Egress::ask_neighbours() {
  if (!paths_.needs_arp()) return 0;
  // Finding who is due takes microseconds while many are.
  constexpr uint32_t kRequestsPerTurn = 8;
  uint32_t asked = 0;
  for (; asked < kRequestsPerTurn; ++asked) {
    const std::optional<ArpToSend> request = paths_.next_request();
    if (!request) break;
    send_arp(*request);
  }
  return asked;
}

}  // namespace hostnic
