// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/nic_views.h"

#include <algorithm>

#include "dataplane/nic/nic_core.h"
#include "protocol/transport_kind.h"
#include "protocol/types.h"

namespace hostnic {

NicView NicViews::nic() const {
  const NicSettings& settings = shard_.shared.settings;
  NicView view;
  view.name = settings.name;
  view.address = settings.text_of(settings.ip);
  view.prefix_length = settings.prefix_length;
  view.mtu_bytes = settings.mtu_bytes;
  view.window = settings.window;
  view.transport = to_string(settings.transport);
  view.policy = wire::to_string(settings.policy);
  if (settings.transport == Transport::kMrc) {
    view.mrc_values = settings.mrc_entropy_values;
    view.mrc_planes = planes_of(shard_);
  }
  view.port = shard_.port.view();
  view.icrc = shard_.egress.adds_icrc() || shard_.port.capabilities().adds_icrc;
  if (const char* const why = shard_.egress.why_no_bundles()) view.no_bundles = why;
  view.clients = shard_.clients.size();
  shard_.qps.for_each([&](const QpContext&) { ++view.qps; });
  view.has_neighbours = shard_.egress.paths().needs_arp();
  if (view.has_neighbours) {
    view.neighbours = shard_.egress.paths().neighbours().size();
    view.neighbours_unanswered = shard_.egress.paths().neighbours().unresolved();
  }
  const MbufUse buffers = mbuf_use(shard_.egress.pools());
  view.buffers_in_use = buffers.in_use;
  view.buffers = buffers.all;
  return view;
}

std::vector<QpView> NicViews::qps(uint32_t& from, std::optional<uint32_t> user) const {
  constexpr size_t kAtATime = 64;
  constexpr uint32_t kLookedAt = 4096;
  std::vector<QpView> views;
  const QpDirectory& qps = shard_.qps;
  const uint32_t end = std::min(from + kLookedAt, qps.end_position());
  for (; from != end && views.size() < kAtATime; ++from) {
    const QpContext* const at = qps.at_position(from);
    if (at == nullptr || (user && at->client->settings().uid != *user)) continue;
    views.push_back(view_of(shard_, *at));
  }
  if (from == qps.end_position()) from = kNoMoreQps;
  return views;
}

std::optional<QpView> NicViews::qp(uint32_t qpn) const {
  const QpContext* const qp = shard_.qps.find(qpn);
  return qp == nullptr ? std::nullopt : std::optional(view_of(shard_, *qp));
}

std::optional<QpView> NicViews::qp_with_peer(Ipv4Address peer, uint32_t peer_qpn) const {
  const QpContext* const qp = find_by_peer(shard_, raw(peer), peer_qpn);
  return qp == nullptr ? std::nullopt : std::optional(view_of(shard_, *qp));
}

std::vector<QpView> NicViews::qps_of(uint32_t pid, size_t most) const {
  std::vector<QpView> found;
  shard_.qps.for_each([&](const QpContext& qp) {
    if (found.size() < most && qp.client->settings().pid == pid)
      found.push_back(view_of(shard_, qp));
  });
  return found;
}

std::optional<DeadQpView> NicViews::dead_qp(uint32_t qpn) const {
  const DeadQpView* const dead = shard_.dead_qps.find(qpn);
  return dead == nullptr ? std::nullopt : std::optional(*dead);
}

std::vector<DeadQpView> NicViews::dead_qps() const { return shard_.dead_qps.all(); }

KeyView NicViews::key(const AccessScope& scope, uint32_t key, uint64_t va, uint64_t length_bytes,
                      uint32_t access, bool is_remote) const {
  return view_key(shard_, scope,
                  {.key = key,
                   .va = va,
                   .length_bytes = length_bytes,
                   .access = access,
                   .is_remote = is_remote});
}

std::vector<PeerView> NicViews::peers() const { return shard_.management.peers().view(shard_.now); }

StrayDatagrams NicViews::stray_datagrams() const { return shard_.stray_datagrams; }

}  // namespace hostnic
