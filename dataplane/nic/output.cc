// Packets towards the port: per-peer output queues, small packets, flow templates, ARP. A full port
// leaves packets queued here and stops the transmitter; nothing is dropped on the in-process wire
// (rules 27, 33).
#include "dataplane/nic/output.h"

#include <rte_branch_prediction.h>
#include <rte_net_crc.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "dataplane/nic/impl.h"

namespace hostnic {
namespace {

uint32_t crc32(const std::byte* data, size_t bytes) {
  return rte_net_crc_calc(data, static_cast<uint32_t>(bytes), RTE_NET_CRC32_ETH);
}

size_t covered_bytes(const wire::Packet& p) { return wire::icrc_covered_bytes(p); }

// Rare: a function of its own, so that others need save no registers for it.
[[gnu::noinline]] void drop(rte_mbuf* packet, PayloadReferences& references) {
  release_packet(packet, references);
}

}  // namespace

bool icrc_valid(rte_mbuf* packet, const wire::Packet& headers) {
  auto* ip = rte_pktmbuf_mtod_offset(packet, std::byte*, wire::kEthernetBytes);
  const size_t covered = covered_bytes(headers);
  if (wire::kEthernetBytes + covered + wire::kIcrcBytes > packet->data_len) return false;
  return wire::icrc_in_place(ip, covered, crc32) == wire::load_icrc(ip + covered);
}

void finish_icrc(std::byte* frame, const wire::Packet& headers) {
  std::byte* ip = frame + wire::kEthernetBytes;
  const size_t covered = covered_bytes(headers);
  const uint32_t pad = wire::pad_bytes(headers.payload_bytes);
  std::memset(ip + covered - pad, 0, pad);
  wire::store_icrc(ip + covered, wire::icrc_in_place(ip, covered, crc32));
}

bool Nic::Impl::has_room(int peer) const {
  if (tx_stage) return outputs[static_cast<size_t>(peer)].count < kBurst;
  return outputs[static_cast<size_t>(peer)].count < kOutputRoom;
}

void Nic::Impl::emit(rte_mbuf* packet, int peer, const wire::Packet& p) {
  packet->port = static_cast<uint16_t>(peer);
  // Rare, too.
  const auto passes = [ this, packet, &p ]() __attribute__((noinline)) {
    return tx_stage->pass(packet, now, [&] { return impairment_info(packet, p); });
  };
  if (unlikely(tx_stage != nullptr) && !passes()) return;
  enqueue(packet, peer);
}

void Nic::Impl::enqueue(rte_mbuf* packet, int peer) {
  OutputQueue& queue = outputs[static_cast<size_t>(peer)];
  if (unlikely(queue.count == queue.packets.size())) {
    // Only packets that an impairment stage lets go in a crowd get here.
    drop(packet, payload_references);
    return;
  }
  queue.packets[queue.count++] = packet;
  if (unlikely(queue.count >= kBurst)) flush(peer);
}

void Nic::Impl::flush(int peer) {
  OutputQueue& queue = outputs[static_cast<size_t>(peer)];
  uint32_t sent = 0;
  if (peer == kLoopbackPeer) {
    while (sent < queue.count && loopback_count < kLoopbackCapacity) {
      counters.add(Counter::tx_bytes, wire_bytes_of(queue.packets[sent]));
      counters.add(Counter::tx_packets, packets_in(queue.packets[sent]));
      loopback[(loopback_head + loopback_count++) % kLoopbackCapacity] = queue.packets[sent++];
    }
  } else {
    // Before they leave: then they are the port's.
    uint64_t bytes = 0, packets = 0;
    for (uint32_t i = 0; i < queue.count; ++i) {
      bytes += wire_bytes_of(queue.packets[i]);
      packets += packets_in(queue.packets[i]);
    }
    while (sent < queue.count) {
      const uint16_t n = port.transmit(static_cast<uint16_t>(peer), queue.packets.data() + sent,
                                       static_cast<uint16_t>(queue.count - sent));
      if (n == 0) break;
      sent += n;
    }
    for (uint32_t i = sent; i < queue.count; ++i) {
      bytes -= wire_bytes_of(queue.packets[i]);
      packets -= packets_in(queue.packets[i]);
    }
    counters.add(Counter::tx_bytes, bytes);
    counters.add(Counter::tx_packets, packets);
  }
  std::copy(queue.packets.begin() + sent, queue.packets.begin() + queue.count,
            queue.packets.begin());
  queue.count -= sent;
}

void Nic::Impl::flush_all() {
  for (uint32_t peer = 0; peer < output_peers; ++peer) {
    if (outputs[peer].count != 0) flush(static_cast<int>(peer));
  }
  if (outputs[kLoopbackPeer].count != 0) flush(kLoopbackPeer);
}

rte_mbuf* Nic::Impl::build_small(const wire::FlowTemplate& flow, const wire::Packet& p,
                                 std::span<const uint64_t> sack_words,
                                 std::span<const std::byte> payload, rte_mempool* pool) {
  assert(p.payload_bytes == payload.size());
  rte_mbuf* packet = rte_pktmbuf_alloc(pool);
  if (packet == nullptr) return nullptr;
  auto* frame = rte_pktmbuf_mtod(packet, std::byte*);
  const size_t header_bytes =
      wire::build(flow, p, adds_icrc, sack_words, {frame, wire::kMaxHeaderBytes});
  if (!payload.empty()) std::memcpy(frame + header_bytes, payload.data(), payload.size());
  finish_linear(packet, p, header_bytes);
  return packet;
}

void Nic::Impl::make_flows(QpContext& qp, const wire::MacAddress& destination) {
  // Both ends of a flow use the requester's tag: what we expect as the answer's is what our
  // requests carry.
  const Ipv4Address peer{qp.dest_ip};
  // Senders follow marks, so routers may mark (rule 27); those of UC never hear of them. ACKs ride
  // in the same flow and are marked in vain.
  const uint8_t ecn = qp.type == QpType::kRc ? wire::kEcnCapable : uint8_t{0};
  const auto traffic_class = static_cast<uint8_t>((qp.traffic_class & ~wire::kEcnMask) | ecn);
  qp.request_flow = wire::make_flow_template(settings.mac, destination, settings.ip, peer,
                                             qp.incoming_response_tag, traffic_class, qp.hop_limit);
  qp.response_flow = wire::make_flow_template(settings.mac, destination, settings.ip, peer,
                                              qp.incoming_request_tag, traffic_class, qp.hop_limit);
}

void Nic::Impl::send_arp(const wire::Arp& arp) {
  rte_mbuf* packet = rte_pktmbuf_alloc(pools.control);
  if (packet == nullptr) return;
  constexpr size_t kMinFrame = 60;
  auto* frame = rte_pktmbuf_mtod(packet, std::byte*);
  std::memset(frame, 0, kMinFrame);
  wire::build_arp(arp, {frame, kMinFrame});
  packet->data_len = kMinFrame;
  packet->pkt_len = kMinFrame;
  enqueue(packet, 0);
}

uint32_t Nic::Impl::ask_neighbours() {
  if (port.is_wire()) return 0;
  uint32_t asked = 0;
  for (int index = neighbours.due(now); index >= 0 && asked < kBurst;
       index = neighbours.due(now), ++asked) {
    send_arp(wire::make_arp_request(settings.mac, settings.ip, neighbours.entry(index).ip));
  }
  return asked;
}

}  // namespace hostnic
