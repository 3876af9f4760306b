// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/wire/hostnic/segment_train.h"

#include <algorithm>

namespace hostnic::wire {

// Reads the byte before the PSN (bth.h).
void DeltaParser::read_place(uint32_t psn_word) {
  psn_word_ = psn_word;
  const unsigned native = psn_word >> 24;
  packet_.ack_request = (native & bth_bit::kAckRequest) != 0;
  packet_.cont = (native & bth_bit::kCont) != 0;
  packet_.more = (native & bth_bit::kMore) != 0;
  packet_.attempt = native >> bth_bit::kAttemptShift & 3;
}

// Parses a packet that is not like the last one.
ParseError DeltaParser::begin_bth(std::span<const std::byte> first_segment, size_t packet_bytes,
                                  bool has_icrc) {
  train_bytes_ = kind_bytes_ = kNoTrain;
  return parse_bth(first_segment, packet_bytes, has_icrc, packet_);
}

ParseError DeltaParser::begin_extensions(Dialect dialect, std::span<const std::byte> first_segment,
                                         size_t packet_bytes, bool has_icrc) {
  const ParseError error = parse_extensions(dialect, first_segment, has_icrc, packet_);
  if (error != ParseError::kNone) return error;
  if (dialect == Dialect::kHostnic && may_resemble(packet_.opcode)) {
    header_bytes_ = packet_.header_bytes;
    kind_bytes_ = packet_bytes;
    if (comes_in_trains(packet_.opcode)) train_bytes_ = packet_bytes;
    has_icrc_ = has_icrc;
    std::memcpy(headers_.data(), first_segment.data(), std::min(header_bytes_, headers_.size()));
    psn_word_ = load_be32(first_segment.data() + train_detail::kPsnWord);
  }
  return ParseError::kNone;
}

}  // namespace hostnic::wire
