#include "protocol/wire/packet_row.h"

#include <algorithm>

namespace hostnic::wire {
namespace {

using row_detail::difference;

constexpr size_t kSrcPort = kEthernetBytes + kIpv4Bytes + udp_offset::kSrcPort;
constexpr size_t kDestQp = kFlowBytes + bth_offset::kDestQp;
constexpr size_t kExtensions = kFlowBytes + kBthBytes;
constexpr size_t kAeth = kExtensions + kNethBytes;
constexpr size_t kSack = kAeth + kAethBytes;

// What packets of one kind and size from one host to another have in common: everything before the
// destination queue pair but the UDP source port.
uint64_t kind_difference(const std::byte* a, const std::byte* b) {
  static_assert(kSrcPort >= 32 && kSrcPort < 40 && kDestQp > kSrcPort + 10 &&
                kDestQp <= kSrcPort + 18);
  uint64_t sum = difference<uint64_t>(a + kSrcPort - 8, b + kSrcPort - 8) |
                 difference<uint64_t>(a + kSrcPort + 2, b + kSrcPort + 2) |
                 difference<uint64_t>(a + kDestQp - 8, b + kDestQp - 8);
#pragma GCC unroll 4
  for (size_t at = 0; at < 32; at += 8) sum |= difference<uint64_t>(a + at, b + at);
  return sum;
}

// What else they differ in is copied; the rest of `to` is the same already.
template <Opcode opcode>
void note_difference(std::byte* to, const std::byte* from) {
  constexpr size_t kEnd =
      kExtensions + extension_bytes(opcode_info(opcode)) - (kFlowBytes + bth_offset::kCongestion);
  static_assert(kFlowBytes + bth_offset::kCongestion + kEnd <= kMaxRowHeaderBytes);
  std::memcpy(to + kSrcPort, from + kSrcPort, sizeof(uint16_t));
  std::memcpy(to + kFlowBytes + bth_offset::kCongestion,
              from + kFlowBytes + bth_offset::kCongestion, kEnd);
}

template <typename View>
View view_at(const std::byte* at) {
  return View(std::span<const std::byte, View::kBytes>(at, View::kBytes));
}

}  // namespace

// What the byte before the PSN says (bth.h).
void RowParser::read_place(uint32_t psn_word) {
  psn_word_ = psn_word;
  const unsigned native = psn_word >> 24;
  packet_.ack_request = (native & bth_bit::kAckRequest) != 0;
  packet_.cont = (native & bth_bit::kCont) != 0;
  packet_.more = (native & bth_bit::kMore) != 0;
  packet_.attempt = native >> bth_bit::kAttemptShift & 3;
}

// Whether the packet is like the last one (begin()), and nothing is wrong with it. packet() is then
// what parse() would make of it; else it means nothing.
inline bool RowParser::resemble(std::span<const std::byte> first_segment, size_t packet_bytes,
                                bool has_icrc) {
  if (packet_bytes != kind_bytes_ || has_icrc != has_icrc_ || first_segment.size() < header_bytes_)
    return false;
  const std::byte* const a = first_segment.data();
  const uint32_t psn_word = load_be32(a + row_detail::kPsnWord);
  const uint64_t different =
      kind_difference(a, headers_.data()) | ((psn_word ^ psn_word_) & row_detail::kPolicyMask);
  if (different != 0) return false;
  packet_.src_port = load_be16(a + kSrcPort);
  packet_.dest_qpn = view_at<BthView>(a + kFlowBytes).dest_qpn();
  packet_.psn = Psn(psn_word);
  if ((psn_word ^ psn_word_) >> 24 != 0) read_place(psn_word);
  if (packet_.opcode != Opcode::kWriteOnly) {
    if (a[kExtensions] != headers_[kExtensions]) return false;  // NETH's version
    packet_.src_qpn = view_at<NethView>(a + kExtensions).src_qpn();
  }
  return packet_.opcode == Opcode::kAck ? resemble_ack(a) : resemble_data(a);
}

inline bool RowParser::resemble_ack(const std::byte* headers) {
  constexpr size_t kWordCount = kSack + sack_eth_offset::kWordCount;
  if (headers[kWordCount] != headers_[kWordCount]) return false;
  const auto aeth = view_at<AethView>(headers + kAeth);
  if (aeth.kind() == AckKind{2}) return false;
  packet_.aeth = aeth.read();
  packet_.sack = view_at<SackEthView>(headers + kSack).read();
  packet_.sack_words = headers + kSack + kSackEthBytes;
  return true;
}

// Of what parse() looks at, RETH's length and a SEND's place in its message can contradict the
// payload's length, which is the last packet's.
inline bool RowParser::resemble_data(const std::byte* headers) {
  packet_.reth = view_at<RethView>(headers + row_detail::reth_offset_of(packet_.opcode)).read();
  switch (packet_.opcode) {
    case Opcode::kWriteOnly:
      note_difference<Opcode::kWriteOnly>(headers_.data(), headers);
      return packet_.reth.length_bytes == packet_.payload_bytes;
    case Opcode::kReadResponse:
      packet_.response_epoch = load_u8(headers + kExtensions + kNethBytes + kRethBytes);
      note_difference<Opcode::kReadResponse>(headers_.data(), headers);
      return packet_.reth.length_bytes == packet_.payload_bytes;
    default:  // kSend
      note_difference<Opcode::kSend>(headers_.data(), headers);
      return send_lengths_agree(packet_);
  }
}

ParseError RowParser::begin(std::span<const std::byte> first_segment, size_t packet_bytes,
                            bool has_icrc) {
  if (resemble(first_segment, packet_bytes, has_icrc)) return ParseError::kNone;
  row_bytes_ = kind_bytes_ = kNoRow;
  const ParseError error = wire::parse(first_segment, packet_bytes, has_icrc, packet_);
  if (error != ParseError::kNone) return error;
  const bool is_ack = packet_.opcode == Opcode::kAck;
  if (is_ack || comes_in_rows(packet_.opcode)) {
    header_bytes_ = packet_.header_bytes;
    kind_bytes_ = packet_bytes;
    if (!is_ack) row_bytes_ = packet_bytes;
    has_icrc_ = has_icrc;
    std::memcpy(headers_.data(), first_segment.data(), std::min(header_bytes_, headers_.size()));
    psn_word_ = load_be32(first_segment.data() + row_detail::kPsnWord);
  }
  return ParseError::kNone;
}

}  // namespace hostnic::wire
