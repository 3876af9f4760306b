// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/observe/view_text.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <iterator>

#include "protocol/transport_kind.h"

namespace hostnic {
namespace {

std::string text_of_rate(const char* name, const RateView& rate) {
  if (rate.cuts == 0) return {};
  const std::string now =
      rate.mbps == 0 ? "unlimited"
                     : fmt::format("{} Mb/s alpha {}/1000", rate.mbps, rate.alpha_permille);
  return fmt::format(" {} {} cuts {} recoveries {}", name, now, rate.cuts, rate.recoveries);
}

std::string text_of_repeats(const QpView& qp) {
  std::string text;
  for (size_t i = 0; i < kRepeatCauses; ++i)
    if (qp.repeated[i] != 0)
      text += fmt::format("{}{}:{}", text.empty() ? " repeated-for " : ",",
                          name_of(static_cast<RepeatCause>(i + 1)), qp.repeated[i]);
  return text;
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

std::string to_text(const PortView& port) {
  std::string text;
  switch (port.kind) {
    case PortKind::kWire:
      return fmt::format("virtual wire, {} NICs ({})", port.wire_nics, port.device);
    case PortKind::kUdp:
      text = fmt::format("udp on {} (MTU {}, sends {}, receives {}", port.device, port.mtu_bytes,
                         port.sends_segments ? "segments" : "packets",
                         port.receives_coalesced ? "coalesced" : "packets");
      break;
    case PortKind::kEthernet:
      text = fmt::format("{} (MTU {}", port.device, port.mtu_bytes);
      break;
    case PortKind::kOther:
      return "other";
  }
  if (!port.link_up) text += ", link down";
  const auto add = [&](uint64_t count, const char* format) {
    if (count != 0) text += fmt::format(fmt::runtime(format), count);
  };
  add(port.lost_without_link, ", {} packets lost without a link");
  add(port.socket_full, ", {} packets found the socket full");
  add(port.without_number, ", {} packets came from hosts for which there is no number left");
  add(port.malformed, ", {} datagrams were no packets");
  add(port.waits_for_room, ", waited {} times for room to send");
  add(port.missed, ", {} packets found the adapter's queue full");
  add(port.without_buffer, ", {} packets found no buffer");
  add(port.bad_frames, ", {} frames arrived broken");
  add(port.not_sent, ", {} packets could not leave");
  if (port.refused_by_kernel != 0)
    text += fmt::format(", the kernel refused {} packets: {}", port.refused_by_kernel,
                        strerror(port.refused_with));
  return text + ")";
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
      nic.buffers_in_use, nic.buffers, to_text(nic.port));
}

// " paths 1 good rtt-us 12 lost 0, 2 avoided rtt-us 11 lost 64"; empty: it has one.
std::string text_of_paths(const QpView& qp) {
  std::string text;
  for (size_t i = 0; i < qp.paths.size(); ++i) {
    const PathView& path = qp.paths[i];
    text += fmt::format("{}{} {} rtt-us {} lost {}", i == 0 ? " paths " : ", ", i + 1,
                        path.good ? "good" : "avoided", (path.srtt_ns + 500) / 1000, path.lost);
  }
  return text;
}

std::string to_text(const MrcPlaneView& plane) {
  std::string text;
  const auto add = [&](uint32_t count, const char* state) {
    if (count != 0) text += fmt::format(" {} {}", count, state);
  };
  add(plane.good, "good");
  add(plane.skipped, "skipped");
  add(plane.bad, "bad");
  add(plane.denied, "denied");
  return text;
}

// " values 60 good 4 bad"; empty: it is no queue pair of MRC, or has not begun to send.
std::string text_of_values(const QpView& qp) {
  MrcPlaneView all;
  for (const MrcPlaneView& plane : qp.mrc_planes) {
    all.good += plane.good, all.skipped += plane.skipped;
    all.bad += plane.bad, all.denied += plane.denied;
  }
  return qp.mrc_planes.empty() ? "" : " values" + to_text(all);
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
      "heard {}{}{}{}{}{}{}",
      nic, qp.qpn, type_name(qp), state_name(qp.state), qp.client_id, peer, qp.dest_qpn,
      qp.mtu_bytes, qp.expected, qp.received_ahead, qp.transmitted, qp.una, qp.recv_next_sn,
      qp.epoch, qp.outstanding(), receives, qp.request_bytes, qp.retransmitted_packets, qp.naks,
      (qp.rtt_ns + 500) / 1000, heard, text_of_repeats(qp), text_of_paths(qp), text_of_values(qp),
      text_of_rate("rate", qp.request_rate), text_of_rate("answer-rate", qp.answer_rate),
      qp.refused_its_peer ? " refused its peer" : "");
}

std::string to_text(const PeerView& peer) {
  const std::string ends = fmt::format("{} from {} peer {}: ", peer.nic, peer.own, peer.peer);
  if (peer.asked) return ends + fmt::format("asked {} times", peer.questions);
  return ends + fmt::format("{}, {}, {} s ago{}", peer.transport, peer.says, peer.age_s,
                            peer.doubted    ? ", doubted"
                            : peer.outdated ? ", to be asked again"
                                            : "");
}

}  // namespace hostnic
