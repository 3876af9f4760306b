// SPDX-License-Identifier: BSD-3-Clause
// Printers of all headers, in the manner of tcpdump. For logs and tests: they allocate.
#include <cinttypes>

#include "protocol/wire/arp.h"
#include "protocol/wire/mrc/packet.h"
#include "protocol/wire/packet.h"
#include "protocol/wire/print_line.h"

namespace hostnic::wire {
namespace {

const char* nak_name(uint8_t code) {
  switch (NakCode{code}) {
    case NakCode::kPsnSequence:
      return "psn-sequence";
    case NakCode::kInvalidRequest:
      return "invalid-request";
    case NakCode::kRemoteAccess:
      return "remote-access";
    case NakCode::kRemoteOperational:
      return "remote-operational";
  }
  return "reserved";
}

std::string bth_flags(const Packet& packet) {
  std::string text;
  const bool native = dialect_of(packet.opcode) == Dialect::kHostnic;
  if (native && packet.cont)
    text += " cont";  // in the standard's dialect the opcode's name says it
  if (native && packet.more) text += " more";
  if (packet.solicited) text += " solicited";
  if (packet.ack_request) text += " ack-request";
  if (packet.fecn) text += " fecn";
  if (packet.becn) text += " becn";
  if (packet.attempt != 0) text += line(" attempt %u", packet.attempt);
  if (packet.policy != Policy::kSelective) text += " " + to_string(packet.policy);
  return text;
}

// Describes the operation of a packet in the standard's dialect.
std::string standard_operation(const Packet& packet) {
  const OpcodeInfo& info = opcode_info(packet.opcode);
  std::string text;
  if (info.has_deth) text += " " + to_string(Deth{packet.qkey, packet.src_qpn});
  if (info.has_reth) text += " " + to_string(packet.reth);
  if (info.has_reth && info.has_payload) text += " packet";
  if (info.has_atomic_eth) text += " " + to_string(packet.atomic);
  if (info.has_aeth) text += " " + to_string(packet.aeth);
  if (info.has_atomic_ack) text += line(" before 0x%" PRIx64, packet.atomic_before);
  if (info.has_payload) text += line(" len %u", packet.payload_bytes);
  if (info.has_imm) text += " " + to_string(ImmDt{packet.imm_data});
  if (info.has_ieth) text += " " + to_string(Ieth{packet.invalidate_rkey});
  return text;
}

// Describes the extension headers, in the words of the operation.
std::string operation(const Packet& packet) {
  const Reth& reth = packet.reth;
  switch (packet.opcode) {
    case Opcode::kWriteOnly:
      return " " + to_string(reth);
    case Opcode::kWriteImm:
      return line(" sn %u ", packet.recv_sn) + to_string(reth) + " " +
             to_string(ImmDt{packet.imm_data});
    case Opcode::kSend:
    case Opcode::kSendImm:
    case Opcode::kSendInv:
      return line(" sn %u offset %" PRIu64 " of %u len %u", reth.key, reth.va, reth.length_bytes,
                  packet.payload_bytes) +
             (packet.opcode == Opcode::kSendImm   ? " " + to_string(ImmDt{packet.imm_data})
              : packet.opcode == Opcode::kSendInv ? " " + to_string(Ieth{packet.invalidate_rkey})
                                                  : "");
    case Opcode::kReadRequest:
      return " " + to_string(reth) + " " + to_string(packet.read);
    case Opcode::kReadResponse:
    case Opcode::kAtomicResponse:
      return line(" read %u offset %" PRIu64 " len %u epoch %u", reth.key, reth.va,
                  reth.length_bytes, packet.response_epoch);
    case Opcode::kCompareSwap:
    case Opcode::kFetchAdd:
      return " " + to_string(packet.atomic) + " " + to_string(packet.read);
    case Opcode::kAck:
      return " " + to_string(packet.aeth) + " " + to_string(packet.sack);
    default:
      return standard_operation(packet);
  }
}

}  // namespace

std::string to_string(const MacAddress& mac) {
  return line("%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
}

std::string to_string(const Ethernet& header) {
  return to_string(header.src) + " > " + to_string(header.dst) +
         line(" type 0x%04x", header.ether_type);
}

std::string to_string(const Arp& arp) {
  if (arp.operation == ArpOperation::kRequest) {
    return "who-has " + to_string(arp.target_ip) + " tell " + to_string(arp.sender_ip) + " (" +
           to_string(arp.sender_mac) + ")";
  }
  return to_string(arp.sender_ip) + " is-at " + to_string(arp.sender_mac);
}

std::string to_string(Ipv4Address address) {
  const uint32_t value = raw(address);
  return line("%u.%u.%u.%u", value >> 24, value >> 16 & 0xff, value >> 8 & 0xff, value & 0xff);
}

std::string to_string(const Ipv4& header) {
  return to_string(header.src) + " > " + to_string(header.dst) +
         line(" proto %u tos 0x%02x ttl %u len %u", header.protocol, header.traffic_class,
              header.hop_limit, header.total_bytes);
}

std::string to_string(const Udp& header) {
  return line("udp %u > %u len %u", header.src_port, header.dst_port, header.length_bytes);
}

std::string to_string(Policy policy) {
  switch (policy) {
    case Policy::kSelective:
      return "selective";
    case Policy::kGoBackN:
      return "go-back-n";
    case Policy::kWholeMessage:
      return "whole-message";
  }
  return "reserved-policy";
}

std::string to_string(const Bth& header) {
  std::string text =
      line("opcode 0x%02x qp 0x%x psn %u", header.opcode, raw(header.dest_qpn), header.psn.value());
  if (header.pad_count != 0) text += line(" pad %u", header.pad_count);
  if (header.version != 0) text += line(" version %u", header.version);
  if (header.pkey != kDefaultPkey) text += line(" pkey 0x%04x", header.pkey);
  if (header.solicited) text += " solicited";
  if (header.migration) text += " migration";
  if (header.fecn) text += " fecn";
  if (header.becn) text += " becn";
  if (header.ack_request) text += " ack-request";
  if (header.cont) text += " cont";
  if (header.more) text += " more";
  if (header.attempt != 0) text += line(" attempt %u", header.attempt);
  if (header.policy != Policy::kSelective) text += " " + to_string(header.policy);
  return text;
}

std::string to_string(const Reth& header) {
  return line("va 0x%" PRIx64 " rkey 0x%x len %u", header.va, header.key, header.length_bytes);
}

std::string to_string(const Deth& header) {
  return line("qkey 0x%x src-qp 0x%x", header.qkey, raw(header.src_qpn));
}

// The bytes are printed in their order in memory, which is what both applications agree on.
std::string to_string(const ImmDt& header) {
  uint8_t bytes[4];
  std::memcpy(bytes, &header.imm_data, sizeof bytes);
  return line("imm 0x%02x%02x%02x%02x", bytes[0], bytes[1], bytes[2], bytes[3]);
}

std::string to_string(const Ieth& header) { return line("invalidates 0x%x", header.rkey); }

std::string to_string(const AtomicEth& header) {
  return line("va 0x%" PRIx64 " rkey 0x%x swap-or-add 0x%" PRIx64 " compare 0x%" PRIx64, header.va,
              header.rkey, header.swap_or_add, header.compare);
}

std::string to_string(const Aeth& header) {
  switch (header.kind) {
    case AckKind::kAck:
      return line("ack msn %u", header.msn);
    case AckKind::kRnrNak:
      return line("rnr-nak timer %u msn %u", header.code, header.msn);
    case AckKind::kNak:
      return line("nak %s msn %u", nak_name(header.code), header.msn);
  }
  return line("reserved-syndrome msn %u", header.msn);
}

std::string to_string(const Neth& header) {
  return line("native %u src-qp 0x%x", header.version, raw(header.src_qpn));
}

std::string to_string(const RecvEth& header) {
  return line("sn %u message %u", header.recv_sn, header.message_bytes);
}

std::string to_string(const ReadEth& header) {
  return line("read %u response-psn %u epoch %u range %u+%u", header.read_number,
              header.first_response_psn.value(), header.epoch, header.offset_bytes,
              header.length_bytes);
}

std::string to_string(const RespEth& header) { return line("epoch %u", header.epoch); }

std::string to_string(const Sack& header) {
  std::string text =
      line("base %u window-end %u", header.base.value(), header.highest_acceptable.value());
  if (header.echo_valid) {
    text += line(" echo %u/%u", header.echo_psn.value(), header.echo_attempt);
    if (header.echo_duplicate) text += " duplicate";
  }
  if (header.has_credit) text += line(" credit %u", header.recv_sn_limit);
  if (header.congestion_mark) text += " congested";
  if (header.nak_sn != 0) text += line(" nak-sn %u", header.nak_sn);
  if (header.word_count != 0) text += line(" words %u", header.word_count);
  return text;
}

std::string to_string(const Packet& packet) {
  if (dialect_of(packet.opcode) == Dialect::kMrc && packet.unread_headers != nullptr) {
    mrc::Packet headers = mrc::headers_at(packet.unread_headers);
    headers.payload_bytes = packet.payload_bytes;
    return to_string(packet.src_ip) + " > " + to_string(packet.dst_ip) + " " +
           mrc::to_string(headers);
  }
  return to_string(packet.src_ip) + " > " + to_string(packet.dst_ip) +
         line(" qp 0x%x %s psn %u", raw(packet.dest_qpn), to_string(packet.opcode),
              packet.psn.value()) +
         operation(packet) + bth_flags(packet);
}

}  // namespace hostnic::wire
