// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/views.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

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

const char* state_name(QpState state) {
  static constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  const auto index = static_cast<size_t>(state);
  return index < std::size(kNames) ? kNames[index] : "?";
}

std::string type_name(const QpView& qp) {
  if (qp.type != QpType::kRc) return qp.type == QpType::kUc ? "UC" : "UD";
  return qp.transport == Transport::kHostnic ? "RC" : fmt::format("RC/{}", to_string(qp.transport));
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
  view.heard = qp.heard_ns != 0;
  if (view.heard) view.silent_ns = nic.now - std::min<TimeNs>(qp.heard_ns, nic.now);
  view.rtt_ns = qp.status->rtt_ns;
  view.naks = qp.status->nak_count;
  view_rates(qp,
             nic.transports.with(
                 qp, [&](const auto& transport) { return transport.answer_rate(qp, nic.now); }),
             view);
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
