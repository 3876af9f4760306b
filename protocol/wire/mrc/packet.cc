// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/wire/mrc/packet.h"

#include <algorithm>

#include "protocol/wire/cursor.h"
#include "protocol/wire/immdt.h"

namespace hostnic::wire::mrc {
namespace {

constexpr uint16_t kPkeyValueMask = 0x7fff;  // the top bit is the sender's membership (10.9.1.1)

// The bytes between BTH and payload.
size_t extension_bytes(const OpcodeInfo& info, bool has_timestamp) {
  if (info.is_write)
    return kMethBytes + has_timestamp * kTsethBytes + kRethBytes + info.has_imm * kImmDtBytes;
  switch (info.opcode) {
    case Opcode::kAck:
      return kAethBytes;
    case Opcode::kSack:
      return kSethBytes + kCcStateBytes;
    case Opcode::kNack:
      return kNethBytes;
    case Opcode::kProbe:
      return kPethBytes;
    case Opcode::kEndpointRequest:
      return kErthBytes;
    default:
      return kEethBytes;
  }
}

// Reads and checks BTH; `info` and `pad_count` are what the rest is read by.
ParseError read_bth(std::span<const std::byte> bytes, Packet& out, const OpcodeInfo*& info,
                    uint8_t& pad_count) {
  if (bytes.size() < kBthBytes) return ParseError::kTruncated;
  const Bth bth = BthView(bytes.first<kBthBytes>()).read();
  if (bth.version != 0) return ParseError::kBadVersion;
  if ((bth.pkey & kPkeyValueMask) != (kDefaultPkey & kPkeyValueMask)) return ParseError::kBadPkey;
  info = find_opcode(bth.opcode);
  if (info == nullptr) return ParseError::kUnknownOpcode;
  pad_count = bth.pad_count;
  out = Packet{};
  out.opcode = bth.opcode;
  out.solicited = bth.solicited;
  out.ack_request = bth.ack_request;
  out.retransmission = bth.retransmission;
  out.has_timestamp = info->is_write && bth.has_timestamp;
  out.pkey = bth.pkey;
  out.dest_qpn = bth.dest_qpn;
  out.psn = bth.psn;
  return ParseError::kNone;
}

// Reads the headers behind BTH, all of them inside the checked bytes.
void read_extensions(const OpcodeInfo& info, Cursor cursor, Packet& out) {
  if (info.is_write) {
    out.meth = cursor.take<MethView>().read();
    if (out.has_timestamp) out.timestamp = cursor.take<TsethView>().read();
    out.reth = cursor.take<RethView>().read();
    if (info.has_imm) out.imm_data = cursor.take<ImmDtView>().imm_data();
    return;
  }
  switch (info.opcode) {
    case Opcode::kAck:
      out.aeth = cursor.take<AethView>().read();
      break;
    case Opcode::kSack:
      out.seth = cursor.take<SethView>().read();
      out.has_cc_state = out.seth.cc_type == kSackCcType;
      if (out.has_cc_state) out.cc_state = cursor.take<CcStateView>().read();
      break;
    case Opcode::kNack:
      out.neth = cursor.take<NethView>().read();
      break;
    case Opcode::kProbe:
      out.peth = cursor.take<PethView>().read();
      break;
    case Opcode::kEndpointRequest:
      out.erth = cursor.take<ErthView>().read();
      break;
    default:
      out.eeth = cursor.take<EethView>().read();
      break;
  }
}

bool is_known(EndpointOperation operation) { return operation <= EndpointOperation::kPathProbe; }

// Checks the header values against each other and against the payload.
ParseError check_agreement(const OpcodeInfo& info, const Packet& packet) {
  bool good = true;
  switch (info.opcode) {
    case Opcode::kAck:
      good = packet.aeth.kind == AckKind::kAck || packet.aeth.kind == AckKind::kNak;
      break;
    case Opcode::kSack:
      good = packet.seth.mark <= PathMark::kAlwaysSkip;
      break;
    case Opcode::kEndpointRequest:
      good = is_known(packet.erth.operation) && packet.dest_qpn == kEndpointQpn;
      break;
    case Opcode::kEndpointResponse:
      good = is_known(packet.eeth.operation) && packet.dest_qpn == kEndpointQpn;
      break;
    default:
      break;
  }
  if (!good) return ParseError::kBadField;
  if (!info.is_write) return ParseError::kNone;
  const uint32_t message_bytes = packet.reth.length_bytes;
  const bool agree = info.begins && info.ends
                         ? packet.payload_bytes == message_bytes
                         : packet.payload_bytes != 0 && packet.payload_bytes < message_bytes;
  return agree ? ParseError::kNone : ParseError::kBadLength;
}

}  // namespace

ParseError parse(std::span<const std::byte> first_segment, size_t packet_bytes, bool has_icrc,
                 Packet& out) {
  const auto bytes = first_segment.first(std::min(first_segment.size(), packet_bytes));
  const OpcodeInfo* info = nullptr;
  uint8_t pad_count = 0;
  const ParseError error = read_bth(bytes, out, info, pad_count);
  if (error != ParseError::kNone) return error;
  if (packet_bytes > UINT16_MAX) return ParseError::kBadLength;  // no UDP datagram has as many
  const size_t headers_end = kBthBytes + extension_bytes(*info, out.has_timestamp);
  const size_t trailer_bytes = has_icrc ? pad_count + kIcrcBytes : 0;
  if (headers_end > bytes.size() || headers_end + trailer_bytes > packet_bytes)
    return ParseError::kTruncated;

  read_extensions(*info, Cursor(bytes.data() + kBthBytes), out);
  out.header_bytes = static_cast<uint16_t>(headers_end);
  out.payload_bytes = static_cast<uint16_t>(packet_bytes - headers_end - trailer_bytes);
  if (pad_count != (has_icrc ? pad_bytes(out.payload_bytes) : 0)) return ParseError::kBadLength;
  if (out.payload_bytes != 0 && !info->is_write) return ParseError::kBadLength;
  return check_agreement(*info, out);
}

Packet headers_at(const std::byte* bth) {
  Packet packet;
  const OpcodeInfo* info = nullptr;
  uint8_t pad_count = 0;
  read_bth({bth, kBthBytes}, packet, info, pad_count);
  read_extensions(*info, Cursor(bth + kBthBytes), packet);
  packet.header_bytes =
      static_cast<uint16_t>(kBthBytes + extension_bytes(*info, packet.has_timestamp));
  return packet;
}

ParseError parse_trimmed(std::span<const std::byte> bytes, Packet& out) {
  const OpcodeInfo* info = nullptr;
  uint8_t pad_count = 0;
  const ParseError error = read_bth(bytes, out, info, pad_count);
  if (error != ParseError::kNone) return error;
  if (!info->is_write) return ParseError::kBadField;
  const size_t headers_end = kBthBytes + kMethBytes + out.has_timestamp * kTsethBytes;
  if (headers_end > bytes.size()) return ParseError::kTruncated;
  Cursor cursor(bytes.data() + kBthBytes);
  out.meth = cursor.take<MethView>().read();
  if (out.has_timestamp) out.timestamp = cursor.take<TsethView>().read();
  out.header_bytes = static_cast<uint16_t>(headers_end);
  return ParseError::kNone;
}

size_t header_bytes(const Packet& packet) {
  return kBthBytes + extension_bytes(*find_opcode(packet.opcode), packet.has_timestamp);
}

size_t build(const Packet& packet, bool has_icrc, std::span<std::byte> out) {
  const OpcodeInfo& info = *find_opcode(packet.opcode);
  const size_t headers = header_bytes(packet);
  assert(out.size() >= headers);
  Appender appender(out.data());
  appender.put<kBthBytes>(
      Bth{.opcode = packet.opcode,
          .solicited = packet.solicited,
          .pad_count = static_cast<uint8_t>(has_icrc ? pad_bytes(packet.payload_bytes) : 0),
          .version = 0,
          .pkey = packet.pkey,
          .dest_qpn = packet.dest_qpn,
          .ack_request = packet.ack_request,
          .retransmission = packet.retransmission,
          .has_timestamp = info.is_write && packet.has_timestamp,
          .psn = packet.psn});
  switch (packet.opcode) {
    case Opcode::kAck:
      appender.put<kAethBytes>(packet.aeth);
      break;
    case Opcode::kSack:
      appender.put<kSethBytes>(packet.seth);
      appender.put<kCcStateBytes>(packet.cc_state);
      break;
    case Opcode::kNack:
      appender.put<kNethBytes>(packet.neth);
      break;
    case Opcode::kProbe:
      appender.put<kPethBytes>(packet.peth);
      break;
    case Opcode::kEndpointRequest:
      appender.put<kErthBytes>(packet.erth);
      break;
    case Opcode::kEndpointResponse:
      appender.put<kEethBytes>(packet.eeth);
      break;
    default:  // WRITEs
      appender.put<kMethBytes>(packet.meth);
      if (packet.has_timestamp) appender.put<kTsethBytes>(packet.timestamp);
      appender.put<kRethBytes>(packet.reth);
      if (info.has_imm) appender.put<kImmDtBytes>(ImmDt{packet.imm_data});
      break;
  }
  assert(appender.at() == out.data() + headers);
  return headers;
}

}  // namespace hostnic::wire::mrc
