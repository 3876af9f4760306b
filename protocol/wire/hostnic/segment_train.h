// SPDX-License-Identifier: BSD-3-Clause
// Segment trains: most packets of a long message, and of many short ones, differ from the one
// before in PSN, RETH address and a few flags: the sender steps from one packet's headers to the
// next one's, and the receiver compares instead of parsing. Where each packet is of another queue
// pair than the one before, they still differ in little more. Pure, no thread of its own.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "protocol/wire/packet.h"

namespace hostnic::wire {

// Whether packets of this opcode come in trains: kWriteOnly, kSend and kReadResponse.
constexpr bool comes_in_trains(Opcode opcode) {
  return opcode == Opcode::kWriteOnly || opcode == Opcode::kSend || opcode == Opcode::kReadResponse;
}
// Whether packets of this opcode may be like the one before, of the same queue pair or another.
constexpr bool may_resemble(Opcode opcode) {
  return comes_in_trains(opcode) || opcode == Opcode::kAck || opcode == Opcode::kReadRequest;
}
// An upper bound of the headers of such packets, except for an ACK's bitmap.
inline constexpr size_t kMaxTrainHeaderBytes =
    kFlowBytes + kBthBytes + kNethBytes + kRethBytes + kReadEthBytes;

namespace train_detail {
// The offset of the word that ends in the PSN; its first byte is what BTH has of ours (bth_bit), of
// which the policy and the flow tag's bit are alike in all packets of a train.
inline constexpr size_t kPsnWord = kFlowBytes + bth_offset::kAckRequest;
inline constexpr uint32_t kAlikeMask = (3u << bth_bit::kPolicyShift | bth_bit::kTagLowest) << 24;

constexpr size_t reth_offset_of(Opcode opcode) {
  return kFlowBytes + kBthBytes + (opcode == Opcode::kWriteOnly ? 0 : kNethBytes);
}
template <typename Word>
uint64_t difference(const std::byte* a, const std::byte* b) {
  Word x, y;
  std::memcpy(&x, a, sizeof(x));
  std::memcpy(&y, b, sizeof(y));
  return x ^ y;
}
// The difference in the eight bytes before that word: the rest of BTH, with the destination queue
// pair.
inline uint64_t bth_difference(const std::byte* a, const std::byte* b) {
  return difference<uint64_t>(a + kPsnWord - 8, b + kPsnWord - 8);
}
// The difference in everything before the eight bytes. The last word looked at overlaps them.
inline uint64_t flow_difference(const std::byte* a, const std::byte* b) {
  static_assert(kPsnWord - 8 > 40 && kPsnWord - 8 <= 48);
  uint64_t sum = 0;
#pragma GCC unroll 6
  for (size_t at = 0; at < 48; at += 8) sum |= difference<uint64_t>(a + at, b + at);
  return sum;
}

constexpr size_t kSrcPort = kEthernetBytes + kIpv4Bytes + udp_offset::kSrcPort;
constexpr size_t kDestQp = kFlowBytes + bth_offset::kDestQp;
constexpr size_t kExtensions = kFlowBytes + kBthBytes;
constexpr size_t kBehindNeth = kExtensions + kNethBytes;
constexpr size_t kSack = kBehindNeth + kAethBytes;

// The difference in what packets of one kind and size from one host to another have in common:
// everything before the destination queue pair except the UDP source port.
inline uint64_t kind_difference(const std::byte* a, const std::byte* b) {
  static_assert(kSrcPort >= 32 && kSrcPort < 40 && kDestQp > kSrcPort + 10 &&
                kDestQp <= kSrcPort + 18);
  uint64_t sum = difference<uint64_t>(a + kSrcPort - 8, b + kSrcPort - 8) |
                 difference<uint64_t>(a + kSrcPort + 2, b + kSrcPort + 2) |
                 difference<uint64_t>(a + kDestQp - 8, b + kDestQp - 8);
#pragma GCC unroll 4
  for (size_t at = 0; at < 32; at += 8) sum |= difference<uint64_t>(a + at, b + at);
  return sum;
}

// Copies what else such packets differ in; the rest of `to` is the same already.
template <Opcode opcode>
void note_difference(std::byte* to, const std::byte* from) {
  constexpr size_t kEnd =
      kExtensions + extension_bytes(opcode_info(opcode)) - (kFlowBytes + bth_offset::kCongestion);
  static_assert(kFlowBytes + bth_offset::kCongestion + kEnd <= kMaxTrainHeaderBytes);
  std::memcpy(to + kSrcPort, from + kSrcPort, sizeof(uint16_t));
  std::memcpy(to + kFlowBytes + bth_offset::kCongestion,
              from + kFlowBytes + bth_offset::kCongestion, kEnd);
}

template <typename View>
View view_at(const std::byte* at) {
  return View(std::span<const std::byte, View::kBytes>(at, View::kBytes));
}
}  // namespace train_detail

// Steps from the headers of such a packet in the middle of its message, as build() wrote them, to
// those of the next, which carries as many bytes: `packet`, the one before that, moves on, and PSN
// and RETH address in `headers` become its.
inline void step(Packet& packet, std::span<std::byte> headers) {
  assert(comes_in_trains(packet.opcode));
  assert(packet.cont && packet.more && !packet.ack_request);
  const size_t reth = train_detail::reth_offset_of(packet.opcode);
  assert(headers.size() >= reth + kRethBytes);
  packet.psn += 1;
  packet.reth.va += packet.payload_bytes;
  store_be24(headers.data() + kFlowBytes + bth_offset::kPsn, packet.psn.value());
  store_be64(headers.data() + reth + reth_offset::kVa, packet.reth.va);
}

// Steps from the headers of a kWriteOnly or kSend packet, as build() wrote them, to those of
// another one of the same flow, opcode and payload size: PSN, flags and RETH, as `packet` says.
inline void restep(const Packet& packet, std::span<std::byte> headers) {
  assert(packet.opcode == Opcode::kWriteOnly || packet.opcode == Opcode::kSend);
  const size_t reth = train_detail::reth_offset_of(packet.opcode);
  assert(headers.size() >= reth + kRethBytes);
  const unsigned flags = packet.solicited * bth_bit::kSolicited;
  const unsigned native = packet.ack_request * bth_bit::kAckRequest | packet.cont * bth_bit::kCont |
                          packet.more * bth_bit::kMore |
                          (packet.attempt & 3u) << bth_bit::kAttemptShift |
                          static_cast<unsigned>(packet.policy) << bth_bit::kPolicyShift;
  std::byte* const bth = headers.data() + kFlowBytes;
  const auto pad = load_u8(bth + bth_offset::kFlags) & ~unsigned{bth_bit::kSolicited};
  store_u8(bth + bth_offset::kFlags, static_cast<uint8_t>(pad | flags));
  store_be32(headers.data() + train_detail::kPsnWord, native << 24 | packet.psn.value());
  emit(packet.reth, std::span<std::byte, kRethBytes>(headers.data() + reth, kRethBytes));
}

// Parses a packet by how it differs from the one before: for trains of packets.
class DeltaParser {
 public:
  // As parse_bth() and parse_extensions() into the packet before: the same answer, and on kNone the
  // same packet(), for any bytes. `dialect_of` is asked for the dialect of a packet of which no
  // more than BTH is known yet; packets that are like the one before are in its dialect.
  template <class DialectOf>
  ParseError parse(std::span<const std::byte> first_segment, size_t packet_bytes, bool has_icrc,
                   const DialectOf& dialect_of) {
    return follow(first_segment, packet_bytes, has_icrc)
               ? ParseError::kNone
               : begin(first_segment, packet_bytes, has_icrc, dialect_of);
  }
  // Whether the packet differs from the one that was parsed last, or followed that one, in nothing
  // but PSN, RETH address and what BTH says of its place in the message: cont, more, A and attempt.
  // packet() is then what parse() would make of it; else it means nothing, and begin() does the
  // rest of parse(): quickly, if the packet comes from the same host as the last one, is of the
  // same kind and as long, as those of many queue pairs are.
  bool follow(std::span<const std::byte> first_segment, size_t packet_bytes, bool has_icrc);
  template <class DialectOf>
  ParseError begin(std::span<const std::byte> first_segment, size_t packet_bytes, bool has_icrc,
                   const DialectOf& dialect_of);
  const Packet& packet() const { return packet_; }

 private:
  static constexpr size_t kNoTrain = SIZE_MAX;  // more bytes than any packet has

  bool resemble(std::span<const std::byte> first_segment, size_t packet_bytes, bool has_icrc);
  bool resemble_ack(const std::byte* headers);
  bool resemble_data(const std::byte* headers);
  ParseError begin_bth(std::span<const std::byte> first_segment, size_t packet_bytes,
                       bool has_icrc);
  ParseError begin_extensions(Dialect dialect, std::span<const std::byte> first_segment,
                              size_t packet_bytes, bool has_icrc);
  void read_place(uint32_t psn_word);

  Packet packet_;
  // The headers of packet_, if others can be like it, and its sizes. Of an ACK or a READ request,
  // which come in no train, they are looked at up to NETH, and an ACK's word count.
  std::array<std::byte, kMaxTrainHeaderBytes> headers_;
  size_t header_bytes_ = 0;
  size_t train_bytes_ = kNoTrain, kind_bytes_ = kNoTrain;  // lengths of packets that follow, or are
                                                           // alike
  uint32_t psn_word_ = 0;                                  // the PSN word of packet_; the first
                                                           // byte counts
  bool has_icrc_ = false;
};

[[gnu::always_inline]] inline bool DeltaParser::follow(std::span<const std::byte> first_segment,
                                                       size_t packet_bytes, bool has_icrc) {
  if (packet_bytes != train_bytes_ || has_icrc != has_icrc_ || first_segment.size() < header_bytes_)
    return false;
  const std::byte *a = first_segment.data(), *b = headers_.data();
  if (train_detail::bth_difference(a, b) != 0) return false;
  const uint32_t psn_word = load_be32(a + train_detail::kPsnWord);
  uint64_t different = train_detail::flow_difference(a, b);
  different |= (psn_word ^ psn_word_) & train_detail::kAlikeMask;
  const size_t reth = train_detail::reth_offset_of(packet_.opcode);
  different |= train_detail::difference<uint64_t>(a + reth + reth_offset::kKey,
                                                  b + reth + reth_offset::kKey);
  if (packet_.opcode != Opcode::kWriteOnly) {
    constexpr size_t kNeth = kFlowBytes + kBthBytes;
    different |= train_detail::difference<uint32_t>(a + kNeth, b + kNeth);
    if (packet_.opcode == Opcode::kReadResponse)
      different |= train_detail::difference<uint32_t>(a + reth + kRethBytes, b + reth + kRethBytes);
  }
  if (different != 0) return false;
  packet_.psn = Psn(psn_word);
  packet_.reth.va = load_be64(a + reth + reth_offset::kVa);
  if ((psn_word ^ psn_word_) >> 24 != 0) read_place(psn_word);
  // parse() checks nothing else that can have changed: address and `more` can only contradict a
  // SEND's length.
  return packet_.opcode != Opcode::kSend || send_lengths_agree(packet_);
}

// Whether the packet is like the last one (begin()), and nothing is wrong with it. packet() is then
// what parse() would make of it; else it means nothing.
[[gnu::always_inline]] inline bool DeltaParser::resemble(std::span<const std::byte> first_segment,
                                                         size_t packet_bytes, bool has_icrc) {
  if (packet_bytes != kind_bytes_ || has_icrc != has_icrc_ || first_segment.size() < header_bytes_)
    return false;
  const std::byte* const a = first_segment.data();
  const uint32_t psn_word = load_be32(a + train_detail::kPsnWord);
  const uint64_t different = train_detail::kind_difference(a, headers_.data()) |
                             ((psn_word ^ psn_word_) & train_detail::kAlikeMask);
  if (different != 0) return false;
  read_flow_tag(load_be16(a + train_detail::kSrcPort), a + kFlowBytes, packet_);
  packet_.dest_qpn = train_detail::view_at<BthView>(a + kFlowBytes).dest_qpn();
  packet_.psn = Psn(psn_word);
  if ((psn_word ^ psn_word_) >> 24 != 0) read_place(psn_word);
  if (packet_.opcode != Opcode::kWriteOnly) {
    if (a[train_detail::kExtensions] != headers_[train_detail::kExtensions])
      return false;  // NETH's version
    packet_.src_qpn = train_detail::view_at<NethView>(a + train_detail::kExtensions).src_qpn();
  }
  return packet_.opcode == Opcode::kAck ? resemble_ack(a) : resemble_data(a);
}

inline bool DeltaParser::resemble_ack(const std::byte* headers) {
  constexpr size_t kWordCount = train_detail::kSack + sack_eth_offset::kWordCount;
  if (headers[kWordCount] != headers_[kWordCount]) return false;
  const auto aeth = train_detail::view_at<AethView>(headers + train_detail::kBehindNeth);
  if (aeth.kind() == AckKind{2}) return false;
  packet_.aeth = aeth.read();
  packet_.sack = train_detail::view_at<SackEthView>(headers + train_detail::kSack).read();
  packet_.unread_headers = headers + train_detail::kSack + kSackEthBytes;
  return true;
}

// Whether a data packet is like the last one: of what parse() checks, RETH's length and a SEND's
// place in its message can contradict the payload's length, which is the last packet's.
inline bool DeltaParser::resemble_data(const std::byte* headers) {
  packet_.reth =
      train_detail::view_at<RethView>(headers + train_detail::reth_offset_of(packet_.opcode))
          .read();
  switch (packet_.opcode) {
    case Opcode::kWriteOnly:
      train_detail::note_difference<Opcode::kWriteOnly>(headers_.data(), headers);
      return packet_.reth.length_bytes == packet_.payload_bytes;
    case Opcode::kReadResponse:
      packet_.response_epoch = load_u8(headers + train_detail::kBehindNeth + kRethBytes);
      train_detail::note_difference<Opcode::kReadResponse>(headers_.data(), headers);
      return packet_.reth.length_bytes == packet_.payload_bytes;
    case Opcode::kReadRequest:  // comes in no train, for which differences would be noted
      packet_.read =
          train_detail::view_at<ReadEthView>(headers + train_detail::kBehindNeth + kRethBytes)
              .read();
      return read_range_agrees(packet_);
    default:  // kSend
      train_detail::note_difference<Opcode::kSend>(headers_.data(), headers);
      return send_lengths_agree(packet_);
  }
}

template <class DialectOf>
[[gnu::always_inline]] inline ParseError DeltaParser::begin(
    std::span<const std::byte> first_segment, size_t packet_bytes, bool has_icrc,
    const DialectOf& dialect_of) {
  if (resemble(first_segment, packet_bytes, has_icrc)) return ParseError::kNone;
  const ParseError error = begin_bth(first_segment, packet_bytes, has_icrc);
  if (error != ParseError::kNone) return error;
  return begin_extensions(dialect_of(packet_), first_segment, packet_bytes, has_icrc);
}

}  // namespace hostnic::wire
