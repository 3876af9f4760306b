// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "protocol/wire/packet.h"

namespace hostnic::wire {
namespace {

constexpr size_t kUdpOffset = kEthernetBytes + kIpv4Bytes;
constexpr size_t kExtensionOffset = kFlowBytes + kBthBytes;
constexpr uint16_t kPkeyValueMask = 0x7fff;  // the top bit is the sender's membership (10.9.1.1)

// Hands out one header after the other. Its owner has checked that they all fit.
class Cursor {
 public:
  explicit Cursor(const std::byte* at) : at_(at) {}
  template <typename View>
  View take() {
    const View view(std::span<const std::byte, View::kBytes>(at_, View::kBytes));
    at_ += View::kBytes;
    return view;
  }
  const std::byte* at() const { return at_; }

 private:
  const std::byte* at_;
};

// Parses Ethernet, IPv4 and UDP. Sets out's addresses and the bytes behind the UDP header.
ParseError parse_network(std::span<const std::byte> bytes, size_t packet_bytes, bool has_icrc,
                         Packet& out, size_t& udp_payload_bytes) {
  if (bytes.size() < kEthernetBytes) return ParseError::kTruncated;
  const EthernetView ethernet(bytes.first<kEthernetBytes>());
  if (ethernet.ether_type() != kEtherTypeIpv4) return ParseError::kNotIpv4;

  if (bytes.size() < kUdpOffset) return ParseError::kTruncated;
  const Ipv4View ip(bytes.subspan<kEthernetBytes, kIpv4Bytes>());
  if (ip.version_ihl() != kIpv4VersionIhl) return ParseError::kNotIpv4;
  if (!ip.checksum_ok()) return ParseError::kBadChecksum;
  if (ip.protocol() != kIpProtocolUdp || ip.is_fragment()) return ParseError::kNotRoce;

  if (bytes.size() < kFlowBytes) return ParseError::kTruncated;
  const UdpView udp(bytes.subspan<kUdpOffset, kUdpBytes>());
  if (udp.dst_port() != kRoceUdpPort) return ParseError::kNotRoce;

  const size_t ip_end = kEthernetBytes + ip.total_bytes();
  if (ip_end > packet_bytes) return ParseError::kTruncated;
  // Only real ports pad frames to the Ethernet minimum.
  if (ip_end < packet_bytes && !has_icrc) return ParseError::kBadLength;
  if (ip_end < kFlowBytes) return ParseError::kTruncated;
  if (kUdpOffset + udp.length_bytes() != ip_end) return ParseError::kBadLength;

  out.src_ip = ip.src();
  out.dst_ip = ip.dst();
  out.traffic_class = ip.traffic_class();
  out.src_port = udp.src_port();  // read_flow_tag() looks at it again
  udp_payload_bytes = ip_end - kFlowBytes;
  return ParseError::kNone;
}

// Parses BTH; `info` is null for an opcode that this NIC does not speak: other errors come first.
ParseError parse_bth(const BthView& bth, const OpcodeInfo* info, Packet& out) {
  if (bth.version() != 0) return ParseError::kBadVersion;
  out.pkey = bth.pkey();
  if ((out.pkey & kPkeyValueMask) != (kDefaultPkey & kPkeyValueMask)) return ParseError::kBadPkey;
  out.opcode = Opcode{bth.opcode()};
  out.solicited = bth.solicited();
  out.ack_request = bth.ack_request();
  out.becn = bth.becn();
  out.fecn = bth.fecn();
  out.dest_qpn = bth.dest_qpn();
  out.psn = bth.psn();
  if (info != nullptr && info->service != Service::kReliable) {
    // The bits that native opcodes use are reserved here, and ignored.
    out.cont = info->cont;
    out.more = info->more;
    out.attempt = 0;
    out.policy = Policy::kSelective;
    return ParseError::kNone;
  }
  out.cont = bth.cont();
  out.more = bth.more();
  out.attempt = bth.attempt();
  out.policy = bth.policy();
  if (out.policy > Policy::kWholeMessage) return ParseError::kBadField;
  return info != nullptr ? ParseError::kNone : ParseError::kUnknownOpcode;
}

// Reads the extension headers of UC and UD: any of the three, in this order.
void read_standard_extensions(Cursor cursor, Packet& out) {
  const OpcodeInfo& info = opcode_info(out.opcode);
  if (info.has_deth) {
    const auto deth = cursor.take<DethView>();
    out.qkey = deth.qkey();
    out.src_qpn = deth.src_qpn();
  }
  if (info.has_reth) out.reth = cursor.take<RethView>().read();
  if (info.has_imm) out.imm_data = cursor.take<ImmDtView>().imm_data();
}

// Reads the extension headers that out.opcode announces, all of them inside the checked bytes
// except an ACK's bitmap, whose length is among what is read.
void read_extensions(Cursor cursor, Packet& out) {
  switch (out.opcode) {
    case Opcode::kWriteOnly:
      out.reth = cursor.take<RethView>().read();
      break;
    case Opcode::kWriteImm:
      out.reth = cursor.take<RethView>().read();
      out.imm_data = cursor.take<ImmDtView>().imm_data();
      {
        const auto recv = cursor.take<RecvEthView>();
        out.recv_sn = recv.recv_sn();
        out.message_bytes = recv.message_bytes();
      }
      break;
    case Opcode::kSend:
      out.reth = cursor.take<RethView>().read();
      break;
    case Opcode::kSendImm:
      out.reth = cursor.take<RethView>().read();
      out.imm_data = cursor.take<ImmDtView>().imm_data();
      break;
    case Opcode::kSendInv:
      out.reth = cursor.take<RethView>().read();
      out.invalidate_rkey = cursor.take<IethView>().rkey();
      break;
    case Opcode::kReadRequest:
      out.reth = cursor.take<RethView>().read();
      out.read = cursor.take<ReadEthView>().read();
      break;
    case Opcode::kReadResponse:
    case Opcode::kAtomicResponse:
      out.reth = cursor.take<RethView>().read();
      out.response_epoch = cursor.take<RespEthView>().epoch();
      break;
    case Opcode::kCompareSwap:
    case Opcode::kFetchAdd:
      out.atomic = cursor.take<AtomicEthView>().read();
      out.read = cursor.take<ReadEthView>().read();
      break;
    case Opcode::kAck:
      out.aeth = cursor.take<AethView>().read();
      out.sack = cursor.take<SackEthView>().read();
      out.sack_words = cursor.at();
      break;
    default:
      read_standard_extensions(cursor, out);
      break;
  }
}

// Checks the header values against each other and against the payload.
ParseError check_agreement(const Packet& packet) {
  switch (packet.opcode) {
    case Opcode::kUcWriteFirst:
      return packet.payload_bytes < packet.reth.length_bytes ? ParseError::kNone
                                                             : ParseError::kBadLength;
    case Opcode::kWriteImm:
      if (packet.more) return ParseError::kBadField;
      [[fallthrough]];
    case Opcode::kWriteOnly:
    case Opcode::kUcWriteOnly:
    case Opcode::kUcWriteOnlyImm:
    case Opcode::kReadResponse:
      return packet.reth.length_bytes == packet.payload_bytes ? ParseError::kNone
                                                              : ParseError::kBadLength;
    case Opcode::kSendImm:
    case Opcode::kSendInv:
      if (packet.more) return ParseError::kBadField;
      [[fallthrough]];
    case Opcode::kSend:
      return send_lengths_agree(packet) ? ParseError::kNone : ParseError::kBadLength;
    case Opcode::kReadRequest:
      return read_range_agrees(packet) ? ParseError::kNone : ParseError::kBadLength;
    case Opcode::kCompareSwap:
    case Opcode::kFetchAdd:
      return ParseError::kNone;
    case Opcode::kAtomicResponse:
      return packet.payload_bytes == kAtomicOperandBytes &&
                     packet.reth.length_bytes == kAtomicOperandBytes
                 ? ParseError::kNone
                 : ParseError::kBadLength;
    case Opcode::kAck:
      return packet.aeth.kind == AckKind{2} ? ParseError::kBadField : ParseError::kNone;
    default:
      return ParseError::kNone;  // there is no length but the packet's own
  }
}

}  // namespace

ParseError parse(std::span<const std::byte> first_segment, size_t packet_bytes, bool has_icrc,
                 Packet& out) {
  const auto bytes = first_segment.first(std::min(first_segment.size(), packet_bytes));
  size_t udp_payload_bytes = 0;
  ParseError error = parse_network(bytes, packet_bytes, has_icrc, out, udp_payload_bytes);
  if (error != ParseError::kNone) return error;

  if (udp_payload_bytes < kBthBytes || bytes.size() < kExtensionOffset) {
    return ParseError::kTruncated;
  }
  const BthView bth(bytes.subspan<kFlowBytes, kBthBytes>());
  read_flow_tag(out.src_port, bytes.data() + kFlowBytes, out);
  const OpcodeInfo* info = find_opcode(bth.opcode());
  error = parse_bth(bth, info, out);
  if (error != ParseError::kNone) return error;

  const size_t trailer_bytes = has_icrc ? bth.pad_count() + kIcrcBytes : 0;
  const size_t packet_end = kFlowBytes + udp_payload_bytes;
  size_t headers_end = kExtensionOffset + extension_bytes(*info);
  if (headers_end > bytes.size()) return ParseError::kTruncated;

  Cursor cursor(bytes.data() + kExtensionOffset);
  out.src_qpn = Qpn{};
  out.sack_words = nullptr;
  if (info->has_neth) {
    const auto neth = cursor.take<NethView>();
    if (neth.version() != kNativeVersion) return ParseError::kBadVersion;
    out.src_qpn = neth.src_qpn();
  }
  read_extensions(cursor, out);
  if (info->has_ack) {
    if (out.sack.word_count > kMaxSackWords) return ParseError::kBadLength;
    headers_end += out.sack.word_count * kSackWordBytes;
    if (headers_end > bytes.size()) return ParseError::kTruncated;
  }
  // Behind the IP length there is only padding, whatever it looks like.
  if (headers_end + trailer_bytes > packet_end) return ParseError::kTruncated;
  out.header_bytes = static_cast<uint16_t>(headers_end);
  out.payload_bytes = static_cast<uint16_t>(packet_end - headers_end - trailer_bytes);
  if (bth.pad_count() != (has_icrc ? pad_bytes(out.payload_bytes) : 0)) {
    return ParseError::kBadLength;
  }
  if (out.payload_bytes != 0 && !info->has_payload) return ParseError::kBadLength;
  return check_agreement(out);
}

const char* to_string(ParseError error) {
  switch (error) {
    case ParseError::kNone:
      return "no error";
    case ParseError::kNotIpv4:
      return "not IPv4 without options";
    case ParseError::kNotRoce:
      return "not unfragmented UDP to port 4791";
    case ParseError::kBadChecksum:
      return "IPv4 header checksum is wrong";
    case ParseError::kTruncated:
      return "a length field reaches past the packet";
    case ParseError::kBadLength:
      return "length fields contradict each other";
    case ParseError::kUnknownOpcode:
      return "unknown BTH opcode";
    case ParseError::kBadVersion:
      return "unsupported BTH or native header version";
    case ParseError::kBadPkey:
      return "P_Key is not the default partition's";
    case ParseError::kBadField:
      return "a field holds a reserved value or contradicts the opcode";
  }
  return "unknown parse error";
}

const char* to_string(Opcode opcode) {
  const OpcodeInfo* info = find_opcode(static_cast<uint8_t>(opcode));
  return info != nullptr ? info->name : "unknown opcode";
}

}  // namespace hostnic::wire
