// SPDX-License-Identifier: BSD-3-Clause
// One RoCEv2 packet's headers, as values in host byte order, and the functions that convert them
// from and to bytes. The NIC's hot path uses these; the header files beside this one hold each
// header's layout. Pure functions, any thread.
//
// Layout on the wire: Ethernet / IPv4 / UDP 4791 / BTH / extension headers by opcode / payload /
// pad / ICRC. (IPv6 is on the network only: the udp port puts IPv4 in its place.) Extension headers
// in order, by opcode (sizes in bytes):
//   kWriteOnly       RETH 16                            standard opcode 0x0A, legal RoCEv2
//   kWriteImm        NETH 4, RETH 16, ImmDt 4, RecvETH 8   last packet of a WRITE_WITH_IMM
//   kSend            NETH 4, RETH 16                    va = offset in message, key = recv SN,
//                                                       length = message
//   kSendImm         NETH 4, RETH 16, ImmDt 4           last packet of a SEND_WITH_IMM
//   kSendInv         NETH 4, RETH 16, IETH 4            last packet of a SEND_WITH_INV
//   kReadRequest     NETH 4, RETH 16, ReadETH 16        RETH: source address, rkey, length of the
//                                                       whole READ; ReadETH: the range wanted of it
//   kReadResponse    NETH 4, RETH 16, RespETH 4         va = offset, key = read number,
//                                                       length = payload bytes
//   kCompareSwap, kFetchAdd   NETH 4, AtomicETH 28, ReadETH 16
//   kAtomicResponse  NETH 4, RETH 16, RespETH 4         as kReadResponse; payload 8: the old value
//   kAck             NETH 4, AETH 4, SackETH 20, bitmap 8 * word_count
//   kUcSend...       with ...Imm: ImmDt 4               standard opcodes, legal RoCEv2
//   kUcWrite...      First, Only: RETH 16; with ...Imm: ImmDt 4
//   kUdSend          DETH 8; with Imm: ImmDt 4
//   kRcSend..., kRcWrite...  as UC; ...Inv: IETH 4      standard opcodes, legal RoCEv2
//   kRcReadRequest   RETH 16
//   kRcRead First, Last, Only; kRcAck   AETH 4
//   kRcCompareSwap, kRcFetchAdd   AtomicETH 28
//   kRcAtomicAck     AETH 4, AtomicAckETH 8
//   kCnp             16 reserved bytes, here the payload
//   kMrc...          as mrc/packet.h says
// The payload's length is RETH's for kWriteOnly, kWriteImm, kReadResponse and kAtomicResponse;
// RETH's length is the whole message's for UC and kRc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "protocol/psn.h"
#include "protocol/types.h"
#include "protocol/wire/bth.h"
#include "protocol/wire/dialect.h"
#include "protocol/wire/ethernet.h"
#include "protocol/wire/flow_tag.h"
#include "protocol/wire/ipv4.h"
#include "protocol/wire/udp.h"

namespace hostnic::wire {

inline constexpr size_t kIcrcBytes = 4;
// The bytes of everything before BTH.
inline constexpr size_t kFlowBytes = kEthernetBytes + kIpv4Bytes + kUdpBytes;
// An upper bound of everything before the payload, for sizing header buffers (largest: ACK with a
// full bitmap).
inline constexpr size_t kMaxHeaderBytes = kFlowBytes + kBthBytes + kNethBytes + kAethBytes +
                                          kSackEthBytes + kSackWordBytes * kMaxSackWords;

namespace mrc {
struct Packet;
}

// The headers of a packet; only the members of the opcode's own headers mean anything. Of MRC's
// packets these are what all transports have, and RETH, AETH and immediate data; the rest is in
// mrc::Packet.
struct Packet {
  Opcode opcode = Opcode::kWriteOnly;
  bool solicited = false;    // BTH SE
  bool ack_request = false;  // BTH A
  bool becn = false, fecn = false;
  bool cont = false;    // not the first packet of its message; UC, UD: what the opcode says
  bool more = false;    // not the last packet of its message
  uint8_t attempt = 0;  // 2 bits, modulo 4
  Policy policy = Policy::kSelective;
  uint16_t pkey = kDefaultPkey;
  Qpn dest_qpn{};
  Psn psn;
  Qpn src_qpn{};      // native opcodes and UD; parse() sets 0 for the others
  uint32_t qkey = 0;  // UD only
  Reth reth;
  uint32_t imm_data = 0;         // bytes as the application gave them: network order, uninterpreted
  uint32_t invalidate_rkey = 0;  // ...Inv only
  uint32_t recv_sn = 0;          // kWriteImm only (SENDs carry it in reth.key)
  uint32_t message_bytes = 0;    // kWriteImm only: length of the whole message (SENDs: reth.length)
  ReadEth read;
  uint8_t response_epoch = 0;
  AtomicEth atomic;
  uint64_t atomic_before = 0;  // kRcAtomicAck only
  Aeth aeth;
  Sack sack;
  // The headers inside the parsed bytes that only some readers want (nullptr: none): of kAck the
  // sack.word_count big-endian 64-bit words, for sack_word(); of an MRC packet its BTH and what
  // follows, for mrc::headers_at(). build() ignores them.
  const std::byte* unread_headers = nullptr;
  // What build() makes an MRC packet of: it must be about the same payload. parse() ignores it.
  const mrc::Packet* mrc = nullptr;

  // parse() sets the addresses and ports; build() takes them from its flow.
  Ipv4Address src_ip{}, dst_ip{};
  uint16_t src_port = 0;  // below kFlowTagBase: what stands for it, the tag that BTH carries
  uint16_t tag_mask = kFlowTagMask;  // the bits of src_port that the flow tag is in
  uint8_t traffic_class = 0;         // DSCP and ECN, see kEcnMask

  uint16_t header_bytes = 0;   // everything before the payload; set by parse()
  uint16_t payload_bytes = 0;  // without pad and ICRC
};

// Word i of a parsed ACK's bitmap; i < sack.word_count.
inline uint64_t sack_word(const std::byte* sack_words, size_t i) {
  return load_be64(sack_words + i * kSackWordBytes);
}
inline uint64_t sack_word(const Packet& packet, size_t i) {
  assert(i < packet.sack.word_count);
  return sack_word(packet.unread_headers, i);
}

// Sets what a parsed packet says of its flow tag, from its source port and its BTH.
inline void read_flow_tag(uint16_t src_port, const std::byte* bth, Packet& packet) {
  const bool in_port = src_port >= kFlowTagBase;
  packet.src_port = in_port ? src_port : carried_flow_tag(bth);
  packet.tag_mask = in_port ? kFlowTagMask : kCarriedTagMask;
}
// Whether a parsed packet may be of the connection that has this tag.
inline bool has_flow_tag(const Packet& packet, uint16_t tag) {
  return ((packet.src_port ^ tag) & packet.tag_mask) == 0;
}

// Whether the network marked a parsed packet (RFC 3168, or FECN).
inline bool congestion_experienced(const Packet& packet) {
  return (packet.traffic_class & kEcnMask) == kEcnCongestionExperienced || packet.fecn;
}

// Marks a frame as the network does that is congested. Returns false if its sender does not allow
// that.
inline bool mark_congestion(std::span<std::byte> frame) {
  if (frame.size() < kEthernetBytes + kIpv4Bytes ||
      load_be16(frame.data() + ethernet_offset::kEtherType) != kEtherTypeIpv4)
    return false;
  std::byte* const ip = frame.data() + kEthernetBytes;
  const uint16_t before = load_be16(ip);  // version and traffic class
  if ((before & kEcnMask) == 0) return false;
  const uint16_t after = before | kEcnCongestionExperienced;
  store_be16(ip, after);
  std::byte* const checksum = ip + ipv4_offset::kChecksum;
  store_be16(checksum, update_checksum(load_be16(checksum), before, after));
  return true;
}

// Writes how long a frame's IPv4 packet is, into that header and UDP's: of a frame with whole ones,
// whose payload is cut off.
inline void set_ip_bytes(std::span<std::byte> frame, uint16_t ip_bytes) {
  std::byte* const ip = frame.data() + kEthernetBytes;
  std::byte* const checksum = ip + ipv4_offset::kChecksum;
  const uint16_t before = load_be16(ip + ipv4_offset::kTotalLength);
  store_be16(ip + ipv4_offset::kTotalLength, ip_bytes);
  store_be16(checksum, update_checksum(load_be16(checksum), before, ip_bytes));
  store_be16(ip + kIpv4Bytes + udp_offset::kLength, static_cast<uint16_t>(ip_bytes - kIpv4Bytes));
}

enum class ParseError : uint8_t {
  kNone,
  kNotIpv4,      // other ethertype, IP version, or IP options (we never send them)
  kNotRoce,      // not UDP 4791, or a fragment
  kBadChecksum,  // IPv4 header checksum
  kTruncated,    // a length field reaches past the packet
  kBadLength,    // lengths that contradict each other (payload against RETH, pad against payload,
                 // word count)
  kUnknownOpcode,
  kBadVersion,  // NETH version or BTH TVer
  kBadPkey,     // not the default partition, which is the only one
  kBadField,    // a reserved value (policy, AETH kind), or `more` where the opcode says "last"
};
// Says in a few words what was wrong: "IPv4 header checksum is wrong".
const char* to_string(ParseError error);

// Parses the headers of one packet up to BTH, which are alike in all dialects. `first_segment` is
// the packet's first contiguous bytes, with at least all headers (the payload may lie in a second
// segment). `packet_bytes` is the length of the whole packet including Ethernet. `has_icrc` says
// whether pad and a 4-byte ICRC end the packet (real ports); the in-process wire omits both. This
// does not verify the ICRC, and ignores the UDP checksum. Trailing Ethernet padding behind the IP
// length is tolerated when has_icrc. It never reads outside first_segment. On error `out` is
// unspecified. It allocates nothing. On success out.opcode may be none of the enumerators,
// header_bytes ends with BTH, and payload_bytes is all that UDP carries behind it.
ParseError parse_bth(std::span<const std::byte> first_segment, size_t packet_bytes, bool has_icrc,
                     Packet& out);

// Parses the rest of a packet that parse_bth() has accepted, from the same bytes into the same
// `out`, in the dialect of the queue pair that BTH names.
//
// What it accepts is consistent: payload and RETH length agree as the table above says; a SEND's
// offset + payload does not exceed its message length, and equals it unless `more`; a UC WRITE's
// first packet has fewer bytes than its message, an only one as many; a READ's range lies in its
// RETH length; word_count <= kMaxSackWords; packets that carry no payload have none. Addresses,
// keys, QPNs and sequence numbers are for the transport to check.
ParseError parse_extensions(Dialect dialect, std::span<const std::byte> first_segment,
                            bool has_icrc, Packet& out);

// Both in one, in the dialect that has the opcode: for those who do not know the queue pair
// (impairments, captures) or need not ask (packets that wait, and have been accepted).
ParseError parse(std::span<const std::byte> first_segment, size_t packet_bytes, bool has_icrc,
                 Packet& out);

// Whether the payload of a SEND can be where the packet says that it belongs in its message. This
// is part of the parser's check.
inline bool send_lengths_agree(const Packet& packet) {
  const uint64_t message_bytes = packet.reth.length_bytes;
  const uint64_t offset_bytes = packet.reth.va;
  if (offset_bytes > message_bytes) return false;
  const uint64_t rest_bytes = message_bytes - offset_bytes;
  return packet.more ? packet.payload_bytes <= rest_bytes : packet.payload_bytes == rest_bytes;
}

// Whether the range that a READ request asks for lies in the READ.
inline bool read_range_agrees(const Packet& packet) {
  return uint64_t{packet.read.offset_bytes} + packet.read.length_bytes <= packet.reth.length_bytes;
}

// A template has Ethernet, IPv4 and UDP with everything constant for one connection filled in;
// lengths and IP checksum are patched per packet.
struct FlowTemplate {
  std::array<std::byte, kFlowBytes> bytes{};
};
FlowTemplate make_flow_template(MacAddress src_mac, MacAddress dst_mac, Ipv4Address src_ip,
                                Ipv4Address dst_ip, uint16_t src_port, uint8_t traffic_class,
                                uint8_t hop_limit = kDefaultHopLimit);

// The template from which build() made these headers.
FlowTemplate flow_of(std::span<const std::byte, kFlowBytes> headers);

// Has packets leave from another source port.
void set_source_port(FlowTemplate& flow, uint16_t port);

// Writes a template's headers, kFlowBytes, before an IP packet of `ip_bytes`.
void write_flow(const FlowTemplate& flow, size_t ip_bytes, std::byte* out);

// The number of bytes that build() will write for this packet's opcode (ACK: by sack.word_count).
// An MRC packet that was parsed says how many it has.
size_t header_bytes(const Packet& packet);

// Writes all headers for `packet` (payload_bytes must be set; src/dst ip and port come from the
// flow) into `out`, which must have at least header_bytes(packet). With `has_icrc`, PadCnt and the
// IP and UDP lengths count pad and ICRC, else PadCnt is 0. `sack_words` is packet.sack.word_count
// words in host order, only for kAck. Returns the bytes written. The caller appends payload, pad
// zeros and ICRC. The packet must be one that parse() would accept and fit IP's 64 KiB; sizes are
// asserted.
size_t build(const FlowTemplate& flow, const Packet& packet, bool has_icrc,
             std::span<const uint64_t> sack_words, std::span<std::byte> out);

// The number of pad bytes (0..3) that follow a payload of this size when the packet carries an
// ICRC.
constexpr uint32_t pad_bytes(uint32_t payload_bytes) { return (4 - (payload_bytes & 3)) & 3; }

// Prints one line, tcpdump style: "10.0.0.1 > 10.0.0.2 qp 0x10001 SEND psn 17 sn 3 offset 4096 of
// 8192 len 1024 more attempt 1".
std::string to_string(const Packet& packet);

}  // namespace hostnic::wire
