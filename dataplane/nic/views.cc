// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/views.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

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

std::string text_of_rate(const char* name, const RateView& rate) {
  if (rate.cuts == 0) return {};
  const std::string now =
      rate.mbps == 0 ? "unlimited"
                     : fmt::format("{} Mb/s alpha {}/1000", rate.mbps, rate.alpha_permille);
  return fmt::format(" {} {} cuts {} recoveries {}", name, now, rate.cuts, rate.recoveries);
}

// What congestion has made of the rates at which a queue pair's requests and answers leave: the
// former says its driver.
void view_rates(const QpContext& qp, TimeNs now_ns, QpView& view) {
  if (qp.transport != Transport::kRoce || qp.roce == nullptr) return;
  const auto word = [](const std::atomic<uint32_t>& value) {
    return value.load(std::memory_order_relaxed);
  };
  const QpStatus& status = *qp.status;
  view.limits_rates = true;
  view.request_rate = {word(status.rate_mbps), word(status.alpha_permille), word(status.rate_cuts),
                       word(status.rate_recoveries)};
  // Time goes by for answers when the next one leaves; here it is looked at as if one did.
  DcqcnLimiter limiter = qp.roce->answer_limiter;
  limiter.advance(now_ns);
  const DcqcnRate& answers = limiter.rate();
  view.answer_rate = {answers.limited() ? std::max(answers.kbps() / 1000, 1u) : 0,
                      answers.alpha_permille(), answers.cuts(), answers.recoveries()};
}

}  // namespace

const char* state_name(QpState state) {
  static constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  const auto index = static_cast<size_t>(state);
  return index < std::size(kNames) ? kNames[index] : "?";
}

const char* type_name(const QpView& qp) {
  if (qp.transport == Transport::kRoce) return "RC/roce";
  return qp.type == QpType::kRc ? "RC" : qp.type == QpType::kUc ? "UC" : "UD";
}

std::string to_text(const NicView& nic) {
  const std::string bundles =
      nic.no_bundles.empty() ? "on" : fmt::format("off ({})", nic.no_bundles);
  const std::string neighbours =
      nic.has_neighbours
          ? fmt::format(" neighbours {} unanswered {}", nic.neighbours, nic.neighbours_unanswered)
          : "";
  return fmt::format(
      "{} {}/{} mtu {} window {} transport {} policy {} icrc {} segmentation {} clients {} qps "
      "{}{} buffers {}/{} port {}",
      nic.name, nic.address, nic.prefix_length, nic.mtu_bytes, nic.window, nic.transport,
      nic.policy, nic.icrc ? "on" : "off", bundles, nic.clients, nic.qps, neighbours,
      nic.buffers_in_use, nic.buffers, nic.port);
}

std::string to_text(const std::string& nic, const QpView& qp, const std::string& peer) {
  const std::string receives =
      qp.shared_receives ? "shared" : fmt::format("{}", qp.receives_waiting);
  // Tenths of a second are what people can use.
  const std::string heard = qp.heard ? fmt::format("{}.{} s ago", qp.silent_ns / 1'000'000'000,
                                                   qp.silent_ns / 100'000'000 % 10)
                                     : "never";
  return fmt::format(
      "{} qp {:#08x} {} {} client {} peer {}:{:#08x} mtu {} rx-base {} ahead {} tx-next {} acked "
      "{} recv-sn {} epoch {} outstanding {} receives {} bytes {} repeated {} naks {} rtt-us {} "
      "heard {}{}{}{}",
      nic, qp.qpn, type_name(qp), state_name(qp.state), qp.client_id, peer, qp.dest_qpn,
      qp.mtu_bytes, qp.expected, qp.received_ahead, qp.transmitted, qp.una, qp.recv_next_sn,
      qp.epoch, qp.outstanding(), receives, qp.request_bytes, qp.retransmitted_packets, qp.naks,
      (qp.rtt_ns + 500) / 1000, heard, text_of_rate("rate", qp.request_rate),
      text_of_rate("answer-rate", qp.answer_rate), qp.refused_its_peer ? " refused its peer" : "");
}

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
  view.recv_next_sn = qp.recv_next_sn;
  view.epoch = qp.epoch;
  view.request_bytes = qp.request_bytes;
  view.retransmitted_packets = qp.retransmitted_packets;
  view.heard = qp.heard_ns != 0;
  if (view.heard) view.silent_ns = now - std::min<TimeNs>(qp.heard_ns, now);
  view.rtt_ns = qp.status->rtt_ns;
  view.naks = qp.status->nak_count;
  view_rates(qp, now, view);
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
