// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/observe/view_json.h"

#include <fmt/format.h>

#include "dataplane/daemon/observe/view_text.h"

namespace hostnic {
namespace {

void write_rate(JsonWriter& json, const char* name, const RateView& rate) {
  json.key(name)
      .begin_object()
      .member("limit_mbps", rate.mbps)
      .member("alpha_permille", rate.alpha_permille)
      .member("cuts", rate.cuts)
      .member("recoveries", rate.recoveries)
      .end_object();
}

void write_paths(JsonWriter& json, const QpView& qp) {
  json.key("paths").begin_array();
  for (const PathView& path : qp.paths)
    json.begin_object()
        .member("state", path.good ? "good" : "avoided")
        .member("srtt_ns", path.srtt_ns)
        .member("lost_packets", path.lost)
        .end_object();
  json.end_array();
}

}  // namespace

void write_planes(JsonWriter& json, std::span<const MrcPlaneView> planes) {
  json.begin_array();
  for (const MrcPlaneView& plane : planes)
    json.begin_object()
        .member("port_up", plane.is_up)
        .member("good", plane.good)
        .member("skipped", plane.skipped)
        .member("bad", plane.bad)
        .member("denied", plane.denied)
        .end_object();
  json.end_array();
}

void write_port(JsonWriter& json, const PortView& port) {
  static constexpr const char* kKinds[] = {"wire", "udp", "ethernet", "other"};
  json.begin_object()
      .member("kind", kKinds[static_cast<size_t>(port.kind)])
      .member("device", port.device)
      .member("mtu_bytes", port.mtu_bytes)
      .member("link_up", port.link_up)
      .member("sends_segments", port.sends_segments)
      .member("receives_coalesced", port.receives_coalesced)
      .member("lost_without_link", port.lost_without_link)
      .member("socket_full", port.socket_full)
      .member("without_number", port.without_number)
      .member("malformed", port.malformed)
      .member("waits_for_room", port.waits_for_room)
      .member("refused_by_kernel", port.refused_by_kernel)
      .member("missed", port.missed)
      .member("without_buffer", port.without_buffer)
      .member("bad_frames", port.bad_frames)
      .member("not_sent", port.not_sent)
      .end_object();
}

std::string peer_address(const Daemon& daemon, const QpView& qp) {
  return host_text(address_of(&daemon.addresses(), Ipv4Address{qp.dest_ip}));
}

void write_members(JsonWriter& json, const std::string& nic, const QpView& qp,
                   const std::string& peer) {
  json.member("nic", nic)
      .member("qpn", qp.qpn)
      .member("type", type_name(qp))
      .member("state", state_name(qp.state))
      .member("client", qp.client_id)
      .member("program", qp.program)
      .member("pid", qp.pid)
      .member("uid", qp.uid)
      .member("peer", peer)
      .member("peer_qpn", qp.dest_qpn)
      .member("mtu_bytes", qp.mtu_bytes)
      .member("outstanding_packets", qp.outstanding())
      .member("acknowledged_psn", qp.una)
      .member("next_psn", qp.transmitted)
      .member("expected_psn", qp.expected)
      .member("packets_ahead", qp.received_ahead)
      .member("shared_receives", qp.shared_receives)
      .member("receives_posted", qp.receives_waiting)
      .member("receives_used", qp.recv_next_sn)
      .member("request_bytes", qp.request_bytes)
      .member("retransmitted_packets", qp.retransmitted_packets)
      .key("retransmitted_by_cause")
      .begin_object();
  for (size_t i = 0; i < kRepeatCauses; ++i)
    json.member(name_of(static_cast<RepeatCause>(i + 1)), qp.repeated[i]);
  json.end_object()
      .member("naks", qp.naks)
      .member("rtt_ns", qp.rtt_ns)
      .member("srtt_ns", qp.srtt_ns)
      .member("rto_ns", qp.rto_ns)
      .member("waiting_ns", qp.waiting_ns)
      .member("heard", qp.heard)
      .member("silent_ns", qp.silent_ns)
      .member("refused_its_peer", qp.refused_its_peer);
  if (!qp.paths.empty()) write_paths(json, qp);
  if (!qp.mrc_planes.empty()) write_planes(json.key("mrc_planes"), qp.mrc_planes);
  if (!qp.limits_rates) return;
  write_rate(json, "request_rate", qp.request_rate);
  write_rate(json, "answer_rate", qp.answer_rate);
}

}  // namespace hostnic
