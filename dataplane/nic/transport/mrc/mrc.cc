// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/transport/mrc/mrc.h"

#include "dataplane/nic/packet/packet.h"

namespace hostnic {
namespace {

namespace wm = wire::mrc;

wm::Opcode mrc_write_opcode(bool imm, bool cont, bool more) {
  if (more) return cont ? wm::Opcode::kWriteMiddle : wm::Opcode::kWriteFirst;
  if (imm) return cont ? wm::Opcode::kWriteLastImm : wm::Opcode::kWriteOnlyImm;
  return cont ? wm::Opcode::kWriteLast : wm::Opcode::kWriteOnly;
}

// A window as MRC says it. Configuration sees to it that a NIC's is not smaller than a unit.
uint8_t mpr_units(uint32_t window_psns) {
  return static_cast<uint8_t>(
      std::clamp<uint32_t>(window_psns / wm::kMprUnitPsns, 1, mrc::kMaxMprUnits));
}

// The headers of a packet; `sent_bytes` of its descriptor have left before it.
wm::Packet headers_of(const SendDescriptor& d, uint32_t sent_bytes, const wire::Packet& p,
                      TimeNs now_ns) {
  const bool has_imm = d.op == SendOp::kWriteImm;
  wm::Packet headers;
  headers.opcode = mrc_write_opcode(has_imm, p.cont, p.more);
  headers.solicited = p.solicited;
  headers.ack_request = p.ack_request;
  headers.retransmission = (d.flags & kSendRetransmit) != 0;
  headers.has_timestamp = true;
  headers.dest_qpn = p.dest_qpn;
  headers.psn = p.psn;
  headers.meth = {has_imm ? static_cast<uint16_t>(d.recv_sn) : uint16_t{0},
                  static_cast<uint16_t>(d.msn)};
  headers.timestamp.value = mrc_timestamp(now_ns);
  headers.reth = {d.va + sent_bytes, d.key, d.message_bytes};
  headers.imm_data = d.imm_data;
  headers.payload_bytes = p.payload_bytes;
  return headers;
}

}  // namespace

MrcTransport::MrcTransport(const TransportServices& nic)
    : settings_(nic.settings),
      egress_(nic.egress),
      packetizer_(nic.packetizer),
      now_(nic.now),
      advance_list_(nic.settings.nic_qps),
      acks_(nic),
      responder_(nic, acks_, advance_list_),
      completer_(nic, acks_),
      endpoint_(nic) {}

bool MrcTransport::receive(QpContext& qp, const wire::Packet& p, rte_mbuf* packet) {
  if (qp.mrc == nullptr) return false;
  const wm::Packet headers = wm::headers_at(p.unread_headers);
  switch (headers.opcode) {
    case wm::Opcode::kSack:
      completer_.receive_sack(qp, headers);
      break;
    case wm::Opcode::kNack:
      completer_.receive_nack(qp, headers);
      break;
    case wm::Opcode::kAck:
      completer_.receive_ack(qp, headers);
      break;
    case wm::Opcode::kProbe:
      acks_.owe_probe_answer(qp, p, headers);
      break;
    default:
      responder_.receive(qp, p, headers, packet);
      break;
  }
  return false;
}

void MrcTransport::receive_trimmed(QpContext& qp, const wire::Packet& p, rte_mbuf* packet) {
  wm::Packet headers;
  const auto behind_udp = first_segment_of(packet).subspan(wire::kFlowBytes);
  if (qp.mrc == nullptr || wm::parse_trimmed(behind_udp, headers) != wire::ParseError::kNone)
    return;
  responder_.receive_trimmed(qp, p, headers);
}

// Starts the requester's half with the first request, which has the first PSN.
void MrcTransport::begin_sending(QpContext& qp) const {
  MrcConnection& connection = *qp.mrc;
  connection.is_sending = true;
  connection.sends.reset(Psn(qp.sq_psn), mpr_units(settings_.window), /*is_dynamic=*/true);
  connection.paths.reset(settings_.mrc_entropy_values,
                         settings_.random_seed ^ uint64_t{qp.qpn} << 32 ^ qp.sq_psn,
                         settings_.mrc_planes);
  endpoint_.begin(qp);
  connection.congestion.reset(
      {.mtu_bytes = qp.mtu_bytes,
       .most_bytes = uint64_t{settings_.window} * qp.mtu_bytes,
       .least_target_ns = uint64_t{settings_.congestion_allowance_us} * 1000});
}

// Passes over the packets of a repetition that are known to have come since it was handed over, but
// for the first that no transport ACK covers: only what comes again brings another. Returns whether
// that was all of the descriptor.
bool MrcTransport::skip_what_has_come(const QpContext& qp, SendProgress& progress) {
  const SendDescriptor& d = progress.descriptor;
  if ((d.flags & kSendRetransmit) == 0) return false;
  for (;;) {
    const Psn psn(d.psn + progress.sent_packets);
    if (psn == qp.una || !qp.mrc->sends.has_come(psn)) return false;
    const uint32_t bytes = std::min<uint32_t>(qp.mtu_bytes, d.length_bytes - progress.sent_bytes);
    Packetizer::pass_payload(progress, bytes);
    if (!Packetizer::note_progress(progress, 1, bytes)) return true;
  }
}

bool MrcTransport::send_one(QpContext& qp, SendProgress& progress, bool& blocked) {
  if (skip_what_has_come(qp, progress)) return false;
  const SendDescriptor& d = progress.descriptor;
  wire::Packet p = Packetizer::next_packet(qp, progress);
  const wm::Packet headers = headers_of(d, progress.sent_bytes, p, now_);
  p.opcode = static_cast<wire::Opcode>(headers.opcode);
  p.mrc = &headers;
  const bool again = headers.retransmission;
  if (again) completer_.note_repetition(qp, p.psn, repeat_cause_of(d), progress.sent_packets == 0);
  mrc::EntropySet& paths = qp.mrc->paths;
  const uint32_t path =
      paths.next(again ? MrcCompleter::path_of(qp, p.psn) : mrc::EntropySet::kNone);
  const bool is_resolved = egress_.paths().prepare_flows(qp);
  if (is_resolved) wire::set_source_port(qp.request_flow, paths.value(path));
  const Leaving leaving = packetizer_.send(qp, progress, p, is_resolved);
  if (leaving != Leaving::kLeft) {
    blocked = leaving == Leaving::kBlocked;
    if (!blocked) completer_.fail_send(qp, p.psn, progress.error);
    return false;
  }
  completer_.note_transmitted(qp, d, p, path);
  return Packetizer::note_progress(progress, 1, p.payload_bytes);
}

void MrcTransport::connect(QpContext& qp) {
  qp.mrc = std::make_unique<MrcConnection>();
  qp.requests.window.reset(Psn(qp.rq_psn), settings_.window);
  qp.mrc->arrivals.reset(Psn(qp.rq_psn), mpr_units(settings_.window));
  qp.mrc->ledger.reset(settings_.window);
  qp.msn = 0;
  qp.ack_owed = false;
  qp.responses_changed = qp.response_bits_published = false;
}

void MrcTransport::quiesce(QpContext& qp) {
  responder_.quiesce(qp);
  advance_list_.forget(qp);
  acks_.forget(qp);
  completer_.forget(qp);
}

uint32_t MrcTransport::begin_turn() {
  // Most turns have nothing due, and each NIC takes them, whatever it speaks.
  uint32_t asked = 0;
  if (now_ >= next_deadline_ns()) asked = completer_.send_probes() + endpoint_.send_due();
  return asked + advance_list_.for_each([this](QpContext& qp) {
    const Psn before = qp.requests.window.expected();
    responder_.advance(qp);
    const bool advanced = qp.requests.window.expected() != before || qp.fatal;
    if (advanced) acks_.owe_ack(qp);
    return advanced;
  });
}

}  // namespace hostnic
