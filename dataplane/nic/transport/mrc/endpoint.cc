// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/transport/mrc/endpoint.h"

#include <errno.h>

#include <algorithm>
#include <bit>

#include "dataplane/nic/transport/mrc/acknowledge.h"
#include "protocol/wire/flow_tag.h"

namespace hostnic {
namespace {

namespace wm = wire::mrc;
using mrc::Denier;
using mrc::EntropySet;
using mrc::PortStatus;

constexpr Qpn kEndpointQpn{2};

// Denies the values of planes whose ports are down to one queue pair.
void apply_ports(EntropySet& paths, uint32_t planes, Denier denier, uint32_t down) {
  for (uint32_t i = 0; i < paths.size(); ++i) {
    const uint32_t port = PortStatus::port_of(paths.value(i) & (planes - 1));
    paths.deny(i, denier, (down & PortStatus::mask_of(port)) != 0);
  }
}

bool is_connected(const QpContext& qp) {
  return qp.mrc != nullptr && qp.state >= QpState::kRtr && qp.state != QpState::kErr;
}

}  // namespace

MrcEndpoint::MrcEndpoint(const TransportServices& nic)
    : settings_(nic.settings),
      qps_(nic.qps),
      egress_(nic.egress),
      counters_(nic.counters),
      now_(nic.now) {}

// Calls visit(queue pair) for each that sends.
template <class Visit>
void MrcEndpoint::for_each_sender(Visit&& visit) const {
  qps_.for_each([&](QpContext& qp) {
    if (is_connected(qp) && qp.mrc->is_sending) visit(qp);
  });
}

// ---- what others want

bool MrcEndpoint::receive(const wire::Packet& p) {
  if (p.opcode != wire::Opcode::kMrcEndpointRequest &&
      p.opcode != wire::Opcode::kMrcEndpointResponse)
    return false;
  if (settings_.transport != Transport::kMrc) return false;
  const wm::Packet headers = wm::headers_at(p.unread_headers);
  if (headers.opcode == wm::Opcode::kEndpointRequest) return take_request(p, headers);
  const auto id = static_cast<uint16_t>(headers.psn.value());
  if (!requests_.answer(id, p.src_ip, headers.eeth.operation, now_)) return false;
  counters_.add(Counter::mrc_endpoint_answers);
  return true;
}

bool MrcEndpoint::take_request(const wire::Packet& p, const wm::Packet& headers) {
  counters_.add(Counter::mrc_endpoint_requests);
  const wm::EndpointOperation operation = headers.erth.operation;
  if (!may_take(operation)) {
    counters_.add(Counter::mrc_endpoint_dropped);
    return true;
  }
  if (operation == wm::EndpointOperation::kPortStatus && !take_port_status(p, headers.erth))
    return false;
  wm::Packet answer;
  answer.opcode = wm::Opcode::kEndpointResponse;
  answer.psn = headers.psn;
  answer.eeth = {operation, headers.erth.timestamp.value};
  send(answer, p.dst_ip, p.src_ip, p.src_port);
  return true;
}

// Hosts to which nothing is connected have nothing to say: they could take paths away.
bool MrcEndpoint::take_port_status(const wire::Packet& p, const wm::Erth& request) {
  const uint32_t all = PortStatus::all_of(settings_.mrc_planes);
  const uint32_t down = all & ~request.port_status_mask;
  bool is_peer = false;
  qps_.for_each([&](QpContext& qp) {
    if (!is_connected(qp) || Ipv4Address{qp.dest_ip} != p.src_ip) return;
    is_peer = true;
    if (qp.mrc->is_sending)
      apply_ports(qp.mrc->paths, settings_.mrc_planes, Denier::kPeersPort, down);
  });
  if (is_peer) ports_.note_peer(p.src_ip, down);
  return is_peer;
}

bool MrcEndpoint::may_take(wm::EndpointOperation operation) {
  const bool is_probe = operation == wm::EndpointOperation::kPathProbe;
  TimeNs& until_ns = is_probe ? probes_until_ns_ : updates_until_ns_;
  const uint64_t each_ns = is_probe ? 1'000'000'000 / kProbesPerSecond  //
                                    : 1'000'000'000 / kUpdatesPerSecond;
  if (until_ns > now_ + kAtOnce * each_ns) return false;
  until_ns = std::max(until_ns, now_) + each_ns;
  return true;
}

// ---- what a controller wants

void MrcEndpoint::begin(QpContext& qp) const {
  EntropySet& paths = qp.mrc->paths;
  const uint32_t planes = settings_.mrc_planes;
  apply_ports(paths, planes, Denier::kOwnPort, ports_.own_down());
  apply_ports(paths, planes, Denier::kPeersPort, ports_.down_of(Ipv4Address{qp.dest_ip}));
  for (uint32_t i = 0; i < paths.size(); ++i)
    if (is_denied(paths.value(i))) paths.deny(i, Denier::kController, true);
}

int MrcEndpoint::set_port(uint32_t port, bool is_up) {
  if (port == 0 || port > settings_.mrc_planes) return EINVAL;
  const uint32_t others =
      PortStatus::all_of(settings_.mrc_planes) & ~ports_.own_down() & ~PortStatus::mask_of(port);
  if (!is_up && others == 0) return EBUSY;
  ports_.set_own(port, is_up);
  for_each_sender([&](QpContext& qp) {
    apply_ports(qp.mrc->paths, settings_.mrc_planes, Denier::kOwnPort, ports_.own_down());
  });
  tell_peers();
  return 0;
}

// One update for each pair of addresses.
void MrcEndpoint::tell_peers() {
  const uint32_t up = PortStatus::all_of(settings_.mrc_planes) & ~ports_.own_down();
  qps_.for_each([&](const QpContext& qp) {
    if (!is_connected(qp)) return;
    const mrc::EndpointRequest update{.operation = wm::EndpointOperation::kPortStatus,
                                      .own = Ipv4Address{qp.source_ip},
                                      .peer = Ipv4Address{qp.dest_ip},
                                      .source_port = port_that_is_up(),
                                      .port_mask = up};
    if (requests_.add(update, now_) == 0) counters_.add(Counter::mrc_endpoint_dropped);
  });
}

// A source port of the first plane whose port is up.
uint16_t MrcEndpoint::port_that_is_up() const {
  const uint32_t up = PortStatus::all_of(settings_.mrc_planes) & ~ports_.own_down();
  return static_cast<uint16_t>(wire::kFlowTagBase + std::countr_zero(up) - 1);
}

int MrcEndpoint::deny(uint32_t value, bool is_denied) {
  if (value < wire::kFlowTagBase || value > UINT16_MAX) return EINVAL;
  denied_.set(value - wire::kFlowTagBase, is_denied);
  for_each_sender([&](QpContext& qp) {
    const uint32_t index = qp.mrc->paths.find(value);
    if (index != EntropySet::kNone) qp.mrc->paths.deny(index, Denier::kController, is_denied);
  });
  return 0;
}

bool MrcEndpoint::is_denied(uint32_t value) const {
  return value >= wire::kFlowTagBase && value <= UINT16_MAX &&
         denied_.test(value - wire::kFlowTagBase);
}

bool MrcEndpoint::probe(Ipv4Address own, Ipv4Address peer, uint16_t value) {
  return requests_.add({.operation = wm::EndpointOperation::kPathProbe,
                        .own = own,
                        .peer = peer,
                        .source_port = value},
                       now_) != 0;
}

// ---- what leaves

uint32_t MrcEndpoint::send_due() {
  return requests_.for_each_due(
      now_, [this](const mrc::EndpointRequest& request, uint16_t id) { return send(request, id); });
}

bool MrcEndpoint::send(const mrc::EndpointRequest& request, uint16_t id) {
  wm::Packet headers;
  headers.opcode = wm::Opcode::kEndpointRequest;
  headers.psn = Psn(id);
  headers.erth.operation = request.operation;
  headers.erth.port_status_mask = request.port_mask;
  headers.erth.timestamp.value = mrc_timestamp(now_);
  return send(headers, request.own, request.peer, request.source_port);
}

bool MrcEndpoint::send(const wm::Packet& headers, Ipv4Address from, Ipv4Address to,
                       uint16_t source_port) {
  const auto way = egress_.way_to(to, Neighbours::kSender);
  if (!way || !egress_.has_room_for_ack(way->peer)) return false;
  wm::Packet packet = headers;
  packet.dest_qpn = kEndpointQpn;
  wire::Packet p;
  p.opcode = static_cast<wire::Opcode>(headers.opcode);
  p.dest_qpn = kEndpointQpn;
  p.psn = headers.psn;
  p.mrc = &packet;
  constexpr uint8_t kHopLimit = 64;
  const wire::FlowTemplate flow = wire::make_flow_template(
      settings_.mac, way->mac, from, to, source_port, /*traffic_class=*/0, kHopLimit);
  rte_mbuf* const built = egress_.build_small(flow, p, {}, {}, egress_.pools().control);
  if (built == nullptr) return false;
  egress_.emit(built, way->peer);
  return true;
}

}  // namespace hostnic
