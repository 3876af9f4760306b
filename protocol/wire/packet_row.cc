#include "protocol/wire/packet_row.h"

#include <cassert>
#include <cstring>

namespace hostnic::wire {
namespace {

constexpr size_t kPsn = kFlowBytes + bth_offset::kPsn;

size_t reth_offset_of(Opcode opcode) {
  return kFlowBytes + kBthBytes + (opcode == Opcode::kWriteOnly ? 0 : kNethBytes);
}

template <typename Word>
uint64_t difference(const std::byte* a, const std::byte* b) {
  Word x, y;
  std::memcpy(&x, a, sizeof(x));
  std::memcpy(&y, b, sizeof(y));
  return x ^ y;
}

// Everything before the PSN. The last word overlaps the one before.
uint64_t front_difference(const std::byte* a, const std::byte* b) {
  static_assert(kPsn > 48 && kPsn <= 56);
  uint64_t sum = difference<uint64_t>(a + kPsn - 8, b + kPsn - 8);
  for (size_t at = 0; at < 48; at += 8) sum |= difference<uint64_t>(a + at, b + at);
  return sum;
}

}  // namespace

void step(Packet& packet, std::span<std::byte> headers) {
  assert(comes_in_rows(packet.opcode));
  assert(packet.cont && packet.more && !packet.ack_request);
  assert(headers.size() >= header_bytes(packet));
  packet.psn += 1;
  packet.reth.va += packet.payload_bytes;
  store_be24(headers.data() + kPsn, packet.psn.value());
  store_be64(headers.data() + reth_offset_of(packet.opcode), packet.reth.va);
}

void restep(const Packet& packet, std::span<std::byte> headers) {
  assert(packet.opcode == Opcode::kWriteOnly || packet.opcode == Opcode::kSend);
  assert(headers.size() >= header_bytes(packet));
  const unsigned flags = packet.solicited * bth_bit::kSolicited;
  const unsigned native = packet.ack_request * bth_bit::kAckRequest | packet.cont * bth_bit::kCont |
                          packet.more * bth_bit::kMore |
                          (packet.attempt & 3u) << bth_bit::kAttemptShift |
                          static_cast<unsigned>(packet.policy) << bth_bit::kPolicyShift;
  std::byte* const bth = headers.data() + kFlowBytes;
  const auto pad = load_u8(bth + bth_offset::kFlags) & ~unsigned{bth_bit::kSolicited};
  store_u8(bth + bth_offset::kFlags, static_cast<uint8_t>(pad | flags));
  store_be32(bth + bth_offset::kAckRequest, native << 24 | packet.psn.value());
  emit(packet.reth, std::span<std::byte, kRethBytes>(headers.data() + reth_offset_of(packet.opcode),
                                                     kRethBytes));
}

bool RowParser::continues_row(std::span<const std::byte> first_segment, size_t packet_bytes,
                              bool has_icrc) const {
  if (header_bytes_ == 0 || packet_bytes != packet_bytes_ || has_icrc != has_icrc_ ||
      first_segment.size() < header_bytes_)
    return false;
  const std::byte *a = first_segment.data(), *b = headers_.data();
  uint64_t different = front_difference(a, b);
  const size_t reth = reth_offset_of(packet_.opcode);
  if (reth != kFlowBytes + kBthBytes)
    different |= difference<uint32_t>(a + kFlowBytes + kBthBytes, b + kFlowBytes + kBthBytes);
  different |= difference<uint64_t>(a + reth + reth_offset::kKey, b + reth + reth_offset::kKey);
  if (packet_.opcode == Opcode::kReadResponse)
    different |= difference<uint32_t>(a + reth + kRethBytes, b + reth + kRethBytes);
  return different == 0;
}

ParseError RowParser::parse(std::span<const std::byte> first_segment, size_t packet_bytes,
                            bool has_icrc) {
  if (continues_row(first_segment, packet_bytes, has_icrc)) {
    packet_.psn = Psn(load_be24(first_segment.data() + kPsn));
    packet_.reth.va = load_be64(first_segment.data() + reth_offset_of(packet_.opcode));
    // Of what parse() looks at, these two can only contradict a SEND's length.
    return packet_.opcode != Opcode::kSend || lengths_agree(packet_) ? ParseError::kNone
                                                                     : ParseError::kBadLength;
  }
  header_bytes_ = 0;
  const ParseError error = wire::parse(first_segment, packet_bytes, has_icrc, packet_);
  if (error == ParseError::kNone && comes_in_rows(packet_.opcode)) {
    header_bytes_ = packet_.header_bytes;
    packet_bytes_ = packet_bytes;
    has_icrc_ = has_icrc;
    std::memcpy(headers_.data(), first_segment.data(), header_bytes_);
  }
  return error;
}

}  // namespace hostnic::wire
