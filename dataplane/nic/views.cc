// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/views.h"

#include <algorithm>

#include "dataplane/nic/nic_core.h"

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

}  // namespace

QpView NicShard::view_of(const QpContext& qp) const {
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
  view.refused_its_peer = qp.fatal;
  if (!qp.fatal) return view;
  view.refused_code = qp.fatal_code;
  view.refused = qp.refused;
  if (qp.roce != nullptr && qp.refused.key == 0) {
    view.refused.key = qp.roce->message.key;
    view.refused.va = qp.roce->message.va;
    view.refused.length_bytes = qp.roce->message.length_bytes;
  }
  PostedReceive receive;
  if (qp.recv_entries != 0 && qp.srq == nullptr &&
      ReceiveQueues::load(qp, qp.refused.recv_sn, receive))
    fault_of_receive(qp, receive, view);
  return view;
}

void NicShard::fault_of_receive(const QpContext& qp, const PostedReceive& receive,
                                QpView& view) const {
  view.refused_receive_bytes = receive.capacity_bytes;
  for (const Sge& sge : receive.list()) {
    view.refused_receive_fault =
        view_key(qp.receive_scope(), sge.lkey, sge.addr, sge.length_bytes, kAccessLocalWrite,
                 /*is_remote=*/false);
    if (view.refused_receive_fault.fault != KeyFault::kNone) return;
  }
}

KeyView NicShard::view_key(const AccessScope& scope, uint32_t key, uint64_t va,
                           uint64_t length_bytes, uint32_t access, bool is_remote) const {
  KeyView view;
  view.key = key;
  view.va = va;
  view.length_bytes = length_bytes;
  view.wanted_access = access;
  if (is_remote && (scope.rights & access) != access) {
    view.fault = KeyFault::kQpRight;
    return view;
  }
  if (is_remote && (key & kWindowKeyBit) != 0) {
    view.is_window = true;
    const MemoryWindow* const window = shared.windows.find(key);
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
  const MemoryRegionEntry* const region = shared.mrs.find(key);
  if (region == nullptr || region->client_id != scope.client_id) {
    view.fault = KeyFault::kUnknown;
  } else if (region->pd != scope.pd) {
    view.fault = KeyFault::kDomain;
  } else {
    view.fault = fault_in_bounds(view, region->iova, region->length_bytes, region->access);
    if (view.fault == KeyFault::kNone && access == kAccessRemoteAtomic &&
        (region->access & kAccessOnDemand) != 0)
      view.fault = KeyFault::kOnDemand;
  }
  return view;
}

void NicShard::note_death(const QpContext& qp, bool with_its_program) {
  dead_qps[dead_count++ % dead_qps.size()] = {view_of(qp), now, with_its_program};
}

const DeadQpView* NicShard::find_dead(uint32_t qpn) const {
  for (uint32_t i = 0; i < std::min<uint64_t>(dead_count, dead_qps.size()); ++i) {
    const DeadQpView& dead = dead_qps[(dead_count - 1 - i) % dead_qps.size()];
    if (dead.last.qpn == qpn) return &dead;
  }
  return nullptr;
}

const QpContext* NicShard::find_by_peer(uint32_t peer_ip, uint32_t peer_qpn) const {
  const QpContext* found = nullptr;
  qps.for_each([&](const QpContext& qp) {
    if (qp.dest_qpn == peer_qpn && qp.dest_ip == peer_ip && qp.state >= QpState::kRtr) found = &qp;
  });
  return found;
}

}  // namespace hostnic
