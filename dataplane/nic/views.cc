// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/views.h"

#include <algorithm>
#include <optional>

#include "dataplane/nic/nic_core.h"
#include "protocol/transport/retransmission_timeout.h"

namespace hostnic {
namespace {

// The part of the check that regions and windows have in common.
KeyFault fault_in_bounds(KeyView& view, uint64_t begin, uint64_t bytes, uint32_t access) {
  view.region_va = begin;
  view.region_bytes = bytes;
  view.region_access = access;
  if ((access & view.wanted_access) != view.wanted_access) return KeyFault::kRight;
  const uint64_t offset = view.va - begin;
  const bool is_inside = offset <= bytes && view.length_bytes <= bytes - offset;
  return is_inside ? KeyFault::kNone : KeyFault::kBounds;
}

// What congestion has made of the rates at which a queue pair's requests and answers leave: the
// former says its driver, and its transport the latter, if it has one.
void view_rates(const QpContext& qp, const std::optional<DcqcnRate>& answers, QpView& view) {
  if (!answers) return;
  const auto word = [](const std::atomic<uint32_t>& value) {
    return value.load(std::memory_order_relaxed);
  };
  const QpStatus& status = *qp.status;
  view.limits_rates = true;
  view.request_rate = {word(status.rate_mbps), word(status.alpha_permille), word(status.rate_cuts),
                       word(status.rate_recoveries)};
  view.answer_rate = {answers->limited() ? std::max(answers->kbps() / 1000, 1u) : 0,
                      answers->alpha_permille(), answers->cuts(), answers->recoveries()};
}

// The paths of a queue pair, as its driver tells of them.
void view_paths(const QpContext& qp, QpView& view) {
  const QpStatus& status = *qp.status;
  const uint32_t count =
      std::min<uint32_t>(status.path_count.load(std::memory_order_relaxed), kMostPaths);
  const uint32_t good = status.good_paths.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < count; ++i) {
    const QpStatus::PathReport& path = status.paths[i];
    view.paths.push_back({.good = (good >> i & 1) != 0,
                          .srtt_ns = path.srtt_ns.load(std::memory_order_relaxed),
                          .lost = path.lost.load(std::memory_order_relaxed)});
  }
}

// The entropy values of a queue pair of MRC, by the planes that they lead to.
void view_planes(const NicShard& nic, const QpContext& qp, QpView& view) {
  if (qp.mrc == nullptr || !qp.mrc->is_sending) return;
  view.mrc_planes = planes_of(nic);
  const mrc::EntropySet& values = qp.mrc->paths;
  for (uint32_t i = 0; i < values.size(); ++i) {
    MrcPlaneView& plane = view.mrc_planes[values.value(i) & (view.mrc_planes.size() - 1)];
    uint32_t* const counts[] = {&plane.good, &plane.skipped, &plane.bad, &plane.denied};
    ++*counts[static_cast<size_t>(values.state(i))];
  }
}

// What went again, and what is waited for.
void view_repeats(const NicShard& nic, const QpContext& qp, QpView& view) {
  const auto since = [&](TimeNs at_ns) { return nic.now - std::min<TimeNs>(at_ns, nic.now); };
  const RepeatTally& repeats = qp.repeats;
  view.repeated = repeats.packets;
  view.last_repeat = repeats.cause;
  view.last_repeat_psn = repeats.psn.value();
  view.last_repeat_ago_ns = since(repeats.sent_ns);
  view.last_repeat_acknowledged = repeats.acknowledged_ns != 0;
  if (view.last_repeat_acknowledged)
    view.last_repair_ns = repeats.acknowledged_ns - repeats.sent_ns;
  if (qp.una != qp.transmitted) view.waiting_ns = since(qp.waits_since_ns);
  const auto word = [](const std::atomic<uint32_t>& value) -> uint64_t {
    return value.load(std::memory_order_relaxed);
  };
  const QpStatus& status = *qp.status;
  if (qp.type != QpType::kRc || word(status.most_rto_us) == 0) return;
  view.srtt_ns = word(status.srtt_ns);
  view.rto_ns = retransmission_timeout_ns(
      view.srtt_ns, word(status.rttvar_ns), static_cast<uint32_t>(word(status.rto_backoff)),
      word(status.least_rto_us) * 1000, word(status.most_rto_us) * 1000);
}

// What is wrong with the memory of the receive that was next when a request was refused.
void fault_of_receive(const NicShard& nic, const QpContext& qp, const PostedReceive& receive,
                      QpView& view) {
  view.refused_receive_bytes = receive.capacity_bytes;
  for (const Sge& sge : receive.list()) {
    view.refused_receive_fault = view_key(nic, qp.receive_scope(),
                                          {.key = sge.lkey,
                                           .va = sge.addr,
                                           .length_bytes = sge.length_bytes,
                                           .access = kAccessLocalWrite});
    if (view.refused_receive_fault.fault != KeyFault::kNone) return;
  }
}

}  // namespace

std::vector<MrcPlaneView> planes_of(const NicShard& nic) {
  std::vector<MrcPlaneView> planes(nic.shared.settings.mrc_planes);
  const uint32_t down = nic.transports.mrc().endpoint().ports_down();
  for (uint32_t i = 0; i < planes.size(); ++i)
    planes[i].is_up = (down & mrc::PortStatus::mask_of(mrc::PortStatus::port_of(i))) == 0;
  return planes;
}

QpView view_of(const NicShard& nic, const QpContext& qp) {
  const ClientChannel::Settings& client = qp.client->settings();
  QpView view;
  view.qpn = qp.qpn;
  view.type = qp.type;
  view.state = qp.state;
  view.transport = qp.transport;
  view.client_id = qp.client_id;
  view.pid = client.pid;
  view.uid = client.uid;
  view.program = client.program;
  view.dest_qpn = qp.dest_qpn;
  view.dest_ip = qp.dest_ip;
  view.source_ip = qp.source_ip;
  view.access = qp.access;
  view.pd = qp.pd;
  view.recv_pd = qp.recv_pd;
  view.qkey = qp.qkey;
  view.mtu_bytes = qp.mtu_bytes;
  view.sq_psn = qp.sq_psn;
  view.rq_psn = qp.rq_psn;
  view.una = qp.una.value();
  view.transmitted = qp.transmitted.value();
  view.expected = qp.requests.window.expected().value();
  view.received_ahead = qp.requests.window.received_ahead();
  view.shared_receives = qp.srq != nullptr;
  if (qp.srq == nullptr && qp.recv_entries != 0)
    view.receives_waiting = ReceiveQueues::posted(qp) - qp.recv_next_sn;
  view.responder_resources = qp.responder_resources;
  view.recv_next_sn = qp.recv_next_sn;
  view.epoch = qp.epoch;
  view.request_bytes = qp.request_bytes;
  view.retransmitted_packets = qp.retransmitted_packets;
  view_repeats(nic, qp, view);
  if (qp.transport == Transport::kHostnic) view_paths(qp, view);
  view_planes(nic, qp, view);
  view.heard = qp.heard_ns != 0;
  if (view.heard) view.silent_ns = nic.now - std::min<TimeNs>(qp.heard_ns, nic.now);
  view.rtt_ns = qp.status->rtt_ns;
  view.naks = qp.status->nak_count;
  view_rates(qp,
             nic.transports.with(
                 qp, [&](const auto& transport) { return transport.answer_rate(qp, nic.now); }),
             view);
  view.drops = qp.drops;
  if (const RefusedRequest& dropped = qp.drops.packet; qp.drops.last == SilentDrop::kAccess)
    view.drop_fault = view_key(nic, qp.scope(),
                               {.key = dropped.key,
                                .va = dropped.va,
                                .length_bytes = dropped.length_bytes,
                                .access = kAccessRemoteWrite,
                                .is_remote = true});
  view.refused_its_peer = qp.fatal;
  if (!qp.fatal) return view;
  view.refused_code = qp.fatal_code;
  view.refused =
      nic.transports.with(qp, [&](const auto& transport) { return transport.refused_request(qp); });
  PostedReceive receive;
  if (qp.recv_entries != 0 && qp.srq == nullptr &&
      ReceiveQueues::load(qp, qp.refused.recv_sn, receive))
    fault_of_receive(nic, qp, receive, view);
  return view;
}

KeyView view_key(const NicShard& nic, const AccessScope& scope, const KeyQuestion& asked) {
  KeyView view;
  view.key = asked.key;
  view.va = asked.va;
  view.length_bytes = asked.length_bytes;
  view.wanted_access = asked.access;
  if (asked.is_remote && (scope.rights & asked.access) != asked.access) {
    view.fault = KeyFault::kQpRight;
    return view;
  }
  if (asked.is_remote && (asked.key & kWindowKeyBit) != 0) {
    view.is_window = true;
    const MemoryWindow* const window = nic.windows.find(asked.key);
    if (window == nullptr || window->client_id != scope.client_id) {
      view.fault = KeyFault::kUnknown;
    } else if (window->pd != scope.pd) {
      view.fault = KeyFault::kDomain;
    } else if (!window->bound || (window->type == WindowType::k2 && window->qpn != scope.qpn)) {
      view.fault = KeyFault::kUnbound;
    } else {
      view.fault = fault_in_bounds(view, window->va, window->length_bytes, window->access);
    }
    return view;
  }
  const MemoryRegionEntry* const region = nic.shared.mrs.find(asked.key);
  if (region == nullptr || region->client_id != scope.client_id) {
    view.fault = KeyFault::kUnknown;
  } else if (region->pd != scope.pd) {
    view.fault = KeyFault::kDomain;
  } else {
    view.fault = fault_in_bounds(view, region->iova, region->length_bytes, region->access);
    if (view.fault == KeyFault::kNone && asked.access == kAccessRemoteAtomic &&
        (region->access & kAccessOnDemand) != 0)
      view.fault = KeyFault::kOnDemand;
  }
  return view;
}

const QpContext* find_by_peer(const NicShard& nic, uint32_t peer_ip, uint32_t peer_qpn) {
  const QpContext* found = nullptr;
  nic.qps.for_each([&](const QpContext& qp) {
    if (qp.dest_qpn == peer_qpn && qp.dest_ip == peer_ip && qp.state >= QpState::kRtr) found = &qp;
  });
  return found;
}

}  // namespace hostnic
