// On the in-process wire a packet's payload stays where it is, in the memory that its work request
// names. Such a packet is one mbuf: the headers in its buffer (data_len), and in its private area
// where the payload lies; pkt_len counts both. DPDK's way, an external buffer in a second mbuf,
// costs another mbuf and its cache lines per packet.
//
// The memory and the queue pair count the packets that refer to them (TRANSPORT.md rules 31, 32),
// so these packets are freed by release_packet() (release.h), never by rte_pktmbuf_free() alone.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "dataplane/nic/mr_table.h"
#include "dataplane/nic/qp_packets.h"

namespace hostnic {

struct BorrowedPayload {
  const std::byte* bytes;
  MemoryRegionEntry* region;
  PacketCount* packets;
  // Of a bundle only (bundle.h).
  uint16_t packets_behind = 0;      // packets behind the one that the headers are of
  uint16_t last_payload_bytes = 0;  // of the last of them; the others carry as much as the first
  bool last_more = false, last_ack_request = false, last_solicited = false;
};
// The private area of every buffer that may carry one.
inline constexpr uint16_t kBorrowedPayloadBytes = 32;
static_assert(sizeof(BorrowedPayload) <= kBorrowedPayloadBytes);

// Dynamic mbuf flags: "its payload is borrowed", "it is a bundle of several packets", and "it ends
// in pad and ICRC". Looked at several times per packet, so they are plain words, not statics that
// each look would have to find initialised; no packet is without a pool, and create_mbuf_pools()
// registers them first.
struct alignas(64) MbufFlags {
  uint64_t borrowed = 0, bundle = 0, icrc = 0;
};
inline MbufFlags mbuf_flags;
// False: DPDK has no flags left (rte_errno). EAL must be up; one thread at a time, and before
// others have packets.
bool register_mbuf_flags();
inline uint64_t borrowed_flag() { return mbuf_flags.borrowed; }
inline uint64_t bundle_flag() { return mbuf_flags.bundle; }
inline uint64_t icrc_flag() { return mbuf_flags.icrc; }

// Null: the payload follows the headers.
inline const BorrowedPayload* borrowed_payload(rte_mbuf* packet) {
  if ((packet->ol_flags & borrowed_flag()) == 0) return nullptr;
  return static_cast<const BorrowedPayload*>(rte_mbuf_to_priv(packet));
}

// Makes a packet that holds nothing but headers one that borrows its payload.
inline void lend_payload(rte_mbuf& packet, size_t header_bytes, uint32_t payload_bytes,
                         const BorrowedPayload& payload) {
  *static_cast<BorrowedPayload*>(rte_mbuf_to_priv(&packet)) = payload;
  packet.ol_flags |= borrowed_flag();
  packet.data_len = static_cast<uint16_t>(header_bytes);
  packet.pkt_len = static_cast<uint32_t>(header_bytes) + payload_bytes;
}

// References of packets to memory and queue pair, for one lcore. Where counting is a locked
// instruction it is done for many packets at a time, those of one region, or of one queue pair of
// another lcore's: a stock of references, from which and into which packets' references move.
// give_back() at the end of each turn: what is in stock counts as packets on their way.
class PayloadReferences {
 public:
  static constexpr uint32_t kStock = 64;

  PayloadReferences() = default;
  PayloadReferences(const PayloadReferences&) = delete;
  PayloadReferences& operator=(const PayloadReferences&) = delete;
  ~PayloadReferences() { give_back(); }

  // `count` <= kStock.
  void take(MemoryRegionEntry& region, PacketCount& packets, uint32_t count) {
    packets.add(count);
    if (region_ != &region || region_count_ < count) {
      give_back_region();
      region_ = &region;
      region.mbufs_out.fetch_add(kStock, std::memory_order_relaxed);
      region_count_ = kStock;
    }
    region_count_ -= count;
  }
  // For another packet with payload of one that exists.
  void take_again(const BorrowedPayload& payload) { take(*payload.region, *payload.packets, 1); }
  void put(const BorrowedPayload& payload) {
    if (region_ != payload.region) {
      give_back_region();
      region_ = payload.region;
    }
    ++region_count_;
    if (payload.packets->is_own()) {
      payload.packets->remove(1);
      return;
    }
    if (packets_ != payload.packets) {
      give_back_packets();
      packets_ = payload.packets;
    }
    ++packets_count_;
  }
  // Without a stock.
  static void give_back_one(const BorrowedPayload& payload) {
    payload.packets->remove(1);
    give_back_region(*payload.region, 1);
  }
  void give_back() {
    give_back_packets();
    give_back_region();
  }

 private:
  void give_back_packets() {
    if (packets_count_ != 0) packets_->remove(std::exchange(packets_count_, 0));
  }
  void give_back_region() {
    if (region_count_ != 0) give_back_region(*region_, std::exchange(region_count_, 0));
  }
  static void give_back_region(MemoryRegionEntry& region, uint32_t count) {
    if (!broken(Fault::region_count_leaks))
      region.mbufs_out.fetch_sub(count, std::memory_order_release);
  }

  MemoryRegionEntry* region_ = nullptr;
  PacketCount* packets_ = nullptr;  // another lcore's
  uint32_t region_count_ = 0, packets_count_ = 0;
};

}  // namespace hostnic
