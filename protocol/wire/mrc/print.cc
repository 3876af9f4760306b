// SPDX-License-Identifier: BSD-3-Clause
// The printer of MRC's packets, in the manner of wire/print.cc. For logs, captures and tests: it
// allocates.
#include <cinttypes>

#include "protocol/wire/immdt.h"
#include "protocol/wire/mrc/packet.h"
#include "protocol/wire/print_line.h"

namespace hostnic::wire::mrc {
namespace {

const char* name_of(PathMark mark) {
  switch (mark) {
    case PathMark::kNone:
      return "";
    case PathMark::kSkipOnce:
      return " skip-once";
    case PathMark::kAlwaysSkip:
      return " always-skip";
  }
  return " reserved-mark";
}

std::string text_of(const Timestamp& timestamp) {
  std::string text = line(" ts %u", timestamp.value);
  if (timestamp.is_coarse) text += " coarse";
  if (timestamp.format != Timestamp::kFormat) text += line(" ts-format %u", timestamp.format);
  return text;
}

std::string text_of(const Contexts& contexts) {
  return line(" contexts 0x%x/0x%x", contexts.source, contexts.destination);
}

std::string text_of(const Seth& seth) {
  std::string text = line(" cumulative %u", seth.cumulative_psn.value());
  text += seth.answers_probe ? line(" probe %u", seth.probe_id)
                             : line(" acks %u", seth.ack_psn().value());
  if (seth.bitmap != 0)
    text += line(" from %u bitmap 0x%016" PRIx64, seth.bitmap_psn().value(), seth.bitmap);
  text += line(" ev 0x%08x%s", seth.entropy, name_of(seth.mark)) + text_of(seth.contexts);
  if (seth.mpr_units != 0) text += line(" mpr %u", seth.mpr_units * kMprUnitPsns);
  if (seth.cc_type != kSackCcType) text += line(" cc-type %u", seth.cc_type);
  if (seth.cc_flags != 0) text += line(" cc-flags %u", seth.cc_flags);
  return text;
}

std::string text_of(const CcState& state) {
  std::string text = line(" ts %u", state.timestamp);
  if (state.out_of_order_count != 0) text += line(" out-of-order %u", state.out_of_order_count);
  if (state.window_penalty != 0) text += line(" penalty %u", state.window_penalty);
  if (state.restores_window) text += " restores-window";
  return text + line(" received %" PRIu64, uint64_t{state.received_units} * kReceivedUnitBytes);
}

std::string text_of(const Neth& neth) {
  std::string text = " " + to_string(neth.reason) +
                     line(" refused %u ev 0x%08x", neth.psn.value(), neth.entropy) +
                     text_of(neth.contexts) + line(" ts %u", neth.timestamp);
  if (neth.vendor != 0) text += line(" vendor %u", neth.vendor);
  if (neth.cc_type != kNackCcType) text += line(" cc-type %u", neth.cc_type);
  if (neth.cc_flags != 0) text += line(" cc-flags %u", neth.cc_flags);
  return text;
}

const char* name_of(EndpointOperation operation) {
  switch (operation) {
    case EndpointOperation::kPortStatus:
      return " port-status";
    case EndpointOperation::kPathProbe:
      return " path-probe";
  }
  return " reserved-operation";
}

std::string write_text(const OpcodeInfo& info, const Packet& packet) {
  std::string text = line(" msn %u", packet.meth.msn);
  if (packet.meth.rqmsn != 0 || info.has_imm) text += line(" rqmsn %u", packet.meth.rqmsn);
  if (packet.has_timestamp) text += text_of(packet.timestamp);
  text += " " + wire::to_string(packet.reth) + line(" packet len %u", packet.payload_bytes);
  if (info.has_imm) text += " " + wire::to_string(ImmDt{packet.imm_data});
  return text;
}

std::string operation(const Packet& packet) {
  switch (packet.opcode) {
    case Opcode::kAck:
      return " " + wire::to_string(packet.aeth);
    case Opcode::kSack:
      return text_of(packet.seth) + (packet.has_cc_state ? text_of(packet.cc_state) : "");
    case Opcode::kNack:
      return text_of(packet.neth);
    case Opcode::kProbe:
      return line(" probe %u", packet.peth.probe_id) + text_of(packet.peth.contexts) +
             text_of(packet.peth.timestamp);
    case Opcode::kEndpointRequest: {
      std::string text = name_of(packet.erth.operation);
      if (packet.erth.operation == EndpointOperation::kPortStatus)
        text += line(" ports 0x%x", packet.erth.port_status_mask);
      return text + text_of(packet.erth.timestamp);
    }
    case Opcode::kEndpointResponse:
      return name_of(packet.eeth.operation) + line(" ts %u", packet.eeth.timestamp);
    default: {
      const OpcodeInfo* const info = find_opcode(packet.opcode);
      return info != nullptr ? write_text(*info, packet) : "";
    }
  }
}

}  // namespace

const char* to_string(Opcode opcode) {
  const OpcodeInfo* const info = find_opcode(opcode);
  return info != nullptr ? info->name : "unknown opcode";
}

std::string to_string(NackReason reason) {
  switch (reason) {
    case NackReason::kTrimmed:
      return "trimmed";
    case NackReason::kTrimmedLastHop:
      return "trimmed-last-hop";
    case NackReason::kNoBitmap:
      return "no-bitmap";
    case NackReason::kNoPacketBuffer:
      return "no-packet-buffer";
    case NackReason::kNoResource:
      return "no-resource";
    case NackReason::kPsnOutOfWindow:
      return "psn-out-of-window";
    case NackReason::kUnexpectedEvent:
      return "unexpected-event";
  }
  return line("reason %u", static_cast<unsigned>(reason));
}

std::string to_string(const Packet& packet) {
  std::string text = line("qp 0x%x %s psn %u", raw(packet.dest_qpn), to_string(packet.opcode),
                          packet.psn.value()) +
                     operation(packet);
  if (packet.solicited) text += " solicited";
  if (packet.ack_request) text += " ack-request";
  if (packet.retransmission) text += " rtx";
  return text;
}

}  // namespace hostnic::wire::mrc
