// SPDX-License-Identifier: BSD-3-Clause
// What people and monitors are shown of a NIC, its queue pairs, keys and peers: values, taken on
// the NIC's lcore. Text is made of them in daemon/observe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "dataplane/nic/views.h"

namespace hostnic {

struct NicShard;
struct PeerView;  // management/peers.h

// Made by Nic::views(). On the NIC's lcore only, and not kept beyond the task that asks.
class NicViews {
 public:
  explicit NicViews(const NicShard& shard) : shard_(shard) {}

  // The NIC itself: `show nic`.
  NicView nic() const;
  // A part of the queue pairs, beginning at position `from` (first 0), which becomes where the next
  // part begins, or kNoMoreQps. With a user: those of its programs.
  static constexpr uint32_t kNoMoreQps = UINT32_MAX;
  std::vector<QpView> qps(uint32_t& from, std::optional<uint32_t> user = std::nullopt) const;
  // A queue pair as it is now; none has that number.
  std::optional<QpView> qp(uint32_t qpn) const;
  // A connected queue pair that names this one as its peer.
  std::optional<QpView> qp_with_peer(Ipv4Address peer, uint32_t peer_qpn) const;
  // The queue pairs of a process, `most` of them.
  std::vector<QpView> qps_of(uint32_t pid, size_t most) const;
  // A queue pair that went, if it was among the last 64; all of these, oldest first.
  std::optional<DeadQpView> dead_qp(uint32_t qpn) const;
  std::vector<DeadQpView> dead_qps() const;
  // What keeps a queue pair's peer (`is_remote`), or its own requests, from memory by a key.
  KeyView key(const AccessScope& scope, uint32_t key, uint64_t va, uint64_t length_bytes,
              uint32_t access, bool is_remote) const;
  // Datagrams for queue pairs that there are not.
  StrayDatagrams stray_datagrams() const;
  // What is known of what hosts speak: `show peers`.
  std::vector<PeerView> peers() const;

 private:
  const NicShard& shard_;
};

}  // namespace hostnic
