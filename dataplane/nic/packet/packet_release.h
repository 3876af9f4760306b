// SPDX-License-Identifier: BSD-3-Clause
// Packets are freed: by these functions, for they may have external payload (external_payload.h).
#pragma once

#include <rte_branch_prediction.h>
#include <rte_mbuf.h>

#include <array>
#include <cstdint>

#include "dataplane/nic/packet/request_bundle.h"

namespace hostnic {

// Frees packets many at a time. Used by one lcore; flush() is called at the end of each turn.
class SpentPackets {
 public:
  SpentPackets() = default;
  SpentPackets(const SpentPackets&) = delete;
  SpentPackets& operator=(const SpentPackets&) = delete;
  ~SpentPackets() { flush(); }
  void add(rte_mbuf* packet) {
    packets_[count_++] = packet;
    if (count_ == packets_.size()) flush();
  }
  void flush() {
    if (count_ == 0) return;
    rte_pktmbuf_free_bulk(packets_.data(), count_);
    count_ = 0;
  }

 private:
  uint32_t count_ = 0;
  std::array<rte_mbuf*, 32> packets_;
};

// Calls visit(payload) for each payload that is released when the packet is freed.
template <class Visit>
[[gnu::always_inline]] inline void for_each_freed_payload(rte_mbuf* packet, Visit&& visit) {
  const ExternalPayload* const payload = external_payload(packet);
  if (payload == nullptr || rte_mbuf_refcnt_read(packet) != 1) return;
  visit(*payload);
  if (likely((packet->ol_flags & bundle_flag()) == 0) || !is_request_bundle(packet)) return;
  BundledRequests& bundled = bundled_requests(packet);
  while (bundled.waiting() != 0) visit(bundled.pop().payload());
}
// Moves a packet's references into `stock` before it is freed.
[[gnu::always_inline]] inline void release_payload(rte_mbuf* packet, PayloadReferences& stock) {
  for_each_freed_payload(packet, [&](const ExternalPayload& payload) { stock.release(payload); });
}
// Frees a packet of any kind, on any lcore.
inline void release_packet(rte_mbuf* packet, PayloadReferences& stock) {
  release_payload(packet, stock);
  rte_pktmbuf_free(packet);
}
inline void release_packet(rte_mbuf* packet) {
  for_each_freed_payload(packet, PayloadReferences::release_one);
  rte_pktmbuf_free(packet);
}

}  // namespace hostnic
