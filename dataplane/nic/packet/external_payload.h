// SPDX-License-Identifier: BSD-3-Clause
// On the in-process wire and on the udp port a packet's payload stays where it is, in the memory
// that its work request names, until it is placed or sent. Such a packet is one mbuf: the headers
// in its buffer (data_len), and in its private area where the payload lies; pkt_len counts both.
// DPDK's way, an external buffer in a second mbuf, costs another mbuf and its cache lines per
// packet.
//
// The memory and the queue pair count the packets that refer to them (docs/transport.md rules 31,
// 32), so these packets are freed by release_packet() (packet_release.h), never by
// rte_pktmbuf_free() alone.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "dataplane/nic/memory/mr_table.h"
#include "dataplane/nic/packet/qp_packets.h"

namespace hostnic {

class DigestTable;

struct ExternalPayload {
  const std::byte* bytes;
  MemoryRegionEntry* region;
  PacketCount* packets;
  // Where it is noted what was read of an answer to a READ (packet/digest_table.h); null: nowhere.
  DigestTable* digests = nullptr;
  // The members from here on are a bundle's only (bundle.h).
  uint16_t packets_behind = 0;      // packets behind the one that the headers belong to
  uint16_t last_payload_bytes = 0;  // payload of the last of them; the others carry as much as the
                                    // first
  bool last_more = false, last_ack_request = false, last_solicited = false;
};
// The private area of every buffer that may have external payload.
inline constexpr uint16_t kExternalPayloadBytes = 64;
static_assert(sizeof(ExternalPayload) <= kExternalPayloadBytes);

// Dynamic mbuf flags: "its payload is external", "it is a bundle of several packets", "it ends in
// pad and ICRC", "the network has lost it" (it arrives only to be read, rule 18), "a switch has cut
// its payload off", and, for captures, "it was sent before" and "impairments did something to it"
// (egress/packet_tap.h). They
// are looked at several times per packet, so they are plain words, not statics that each look would
// have to find initialised; no packet is without a pool, and create_mbuf_pools() registers them
// first.
struct alignas(64) MbufFlags {
  uint64_t external = 0, bundle = 0, icrc = 0, lost = 0, resent = 0, impaired = 0, trimmed = 0;
  uint64_t set_aside = 0;  // lost and trimmed: what is not dispatched
};
inline MbufFlags mbuf_flags;
// Registers the flags. Returns false if DPDK has no flags left (rte_errno); EAL must be up; called
// by one thread at a time, before others have packets.
bool register_mbuf_flags();
inline uint64_t external_flag() { return mbuf_flags.external; }
inline uint64_t bundle_flag() { return mbuf_flags.bundle; }
inline uint64_t icrc_flag() { return mbuf_flags.icrc; }
inline uint64_t lost_flag() { return mbuf_flags.lost; }
inline uint64_t resent_flag() { return mbuf_flags.resent; }
inline uint64_t impaired_flag() { return mbuf_flags.impaired; }
inline uint64_t trimmed_flag() { return mbuf_flags.trimmed; }

// The packet's external payload; null: the payload follows the headers.
inline const ExternalPayload* external_payload(rte_mbuf* packet) {
  if ((packet->ol_flags & external_flag()) == 0) return nullptr;
  return static_cast<const ExternalPayload*>(rte_mbuf_to_priv(packet));
}

// Whether the receiver has to note what it reads of a packet, also where the network has lost it.
inline bool is_noted_when_read(rte_mbuf* packet) {
  const ExternalPayload* const payload = external_payload(packet);
  return payload != nullptr && payload->digests != nullptr;
}
inline bool is_lost(const rte_mbuf* packet) { return (packet->ol_flags & lost_flag()) != 0; }
// Whether a packet has no payload that could be dispatched: it is lost, or trimmed.
inline bool is_set_aside(const rte_mbuf* packet) {
  return (packet->ol_flags & mbuf_flags.set_aside) != 0;
}

// Attaches external payload to a packet that has nothing but headers. `flags` are external_flag()
// and what else is to be said of the packet.
inline void attach_payload(rte_mbuf& packet, size_t header_bytes, uint32_t payload_bytes,
                           const ExternalPayload& payload, uint64_t flags = external_flag()) {
  *static_cast<ExternalPayload*>(rte_mbuf_to_priv(&packet)) = payload;
  packet.ol_flags |= flags;
  packet.data_len = static_cast<uint16_t>(header_bytes);
  packet.pkt_len = static_cast<uint32_t>(header_bytes) + payload_bytes;
}

// References of packets to memory and queue pair, for one lcore. Where counting is a locked
// instruction it is done for many packets at a time, all of one region, or of one queue pair of
// another lcore's: references move between the packets and a stock.
// flush() is called at the end of each turn: what is in stock counts as packets on their way.
class PayloadReferences {
 public:
  static constexpr uint32_t kStock = 64;

  PayloadReferences() = default;
  PayloadReferences(const PayloadReferences&) = delete;
  PayloadReferences& operator=(const PayloadReferences&) = delete;
  ~PayloadReferences() { flush(); }

  // Takes `count` references; `count` <= kStock.
  void acquire(MemoryRegionEntry& region, PacketCount& packets, uint32_t count) {
    packets.add(count);
    if (region_ != &region || region_count_ < count) {
      flush_region();
      region_ = &region;
      region.mbufs_out.fetch_add(kStock, std::memory_order_relaxed);
      region_count_ = kStock;
    }
    region_count_ -= count;
  }
  // Takes the references of another packet with a payload that exists already.
  void acquire_again(const ExternalPayload& payload) {
    acquire(*payload.region, *payload.packets, 1);
  }
  void release(const ExternalPayload& payload) {
    if (region_ != payload.region) {
      flush_region();
      region_ = payload.region;
    }
    ++region_count_;
    if (payload.packets->is_own()) {
      payload.packets->remove(1);
      return;
    }
    if (packets_ != payload.packets) {
      flush_packets();
      packets_ = payload.packets;
    }
    ++packets_count_;
  }
  // Releases one packet's references without a stock.
  static void release_one(const ExternalPayload& payload) {
    payload.packets->remove(1);
    release_region(*payload.region, 1);
  }
  void flush() {
    flush_packets();
    flush_region();
  }

 private:
  void flush_packets() {
    if (packets_count_ != 0) packets_->remove(std::exchange(packets_count_, 0));
  }
  void flush_region() {
    if (region_count_ != 0) release_region(*region_, std::exchange(region_count_, 0));
  }
  static void release_region(MemoryRegionEntry& region, uint32_t count) {
    region.mbufs_out.fetch_sub(count, std::memory_order_release);
  }

  MemoryRegionEntry* region_ = nullptr;
  PacketCount* packets_ = nullptr;  // a count of another lcore's
  uint32_t region_count_ = 0, packets_count_ = 0;
};

}  // namespace hostnic
