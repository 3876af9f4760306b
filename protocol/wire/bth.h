// SPDX-License-Identifier: BSD-3-Clause
// Base Transport Header, 12 bytes (InfiniBand 9.2):
//   0 opcode | 1 SE 0x80, M 0x40, PadCnt 0x30, TVer 0x0f | 2 P_Key
//   4 FECN 0x80, BECN 0x40, reserved | 5 DestQP 24 | 8 A 0x80 and seven reserved bits | 9 PSN 24
// The native transport uses the reserved bits beside A, which the ICRC covers:
//   cont 0x40 | more 0x20 | attempt 0x18 | policy 0x06 | tag 0x01
// All of them zero means "a whole message, first attempt".
// Byte 4 is outside the ICRC. Its reserved bits and the last one beside A are the flow tag's, where
// the source port can't be (flow_tag.h); all others send 0 there, and ignore them.
#pragma once

#include <string>

#include "protocol/psn.h"
#include "protocol/types.h"
#include "protocol/wire/bytes.h"

namespace hostnic::wire {

inline constexpr size_t kBthBytes = 12;
inline constexpr uint16_t kDefaultPkey = 0xffff;

// Recovery policy of the sender, carried in every packet (docs/transport.md rule 30).
enum class Policy : uint8_t { kSelective = 0, kGoBackN = 1, kWholeMessage = 2 };

namespace bth_offset {
inline constexpr size_t kOpcode = 0;
inline constexpr size_t kFlags = 1;
inline constexpr size_t kPkey = 2;
inline constexpr size_t kCongestion = 4;
inline constexpr size_t kDestQp = 5;
inline constexpr size_t kAckRequest = 8;
inline constexpr size_t kPsn = 9;
}  // namespace bth_offset

namespace bth_bit {
inline constexpr uint8_t kSolicited = 0x80;
inline constexpr uint8_t kMigration = 0x40;
inline constexpr uint8_t kPadShift = 4;
inline constexpr uint8_t kVersionMask = 0x0f;
inline constexpr uint8_t kFecn = 0x80;
inline constexpr uint8_t kBecn = 0x40;
inline constexpr uint8_t kTagMask = 0x3f;
inline constexpr uint8_t kAckRequest = 0x80;
inline constexpr uint8_t kCont = 0x40;
inline constexpr uint8_t kMore = 0x20;
inline constexpr uint8_t kAttemptShift = 3;
inline constexpr uint8_t kPolicyShift = 1;
inline constexpr uint8_t kTagLowest = 0x01;
}  // namespace bth_bit

struct Bth {
  uint8_t opcode = 0;
  bool solicited = false;
  bool migration = false;
  uint8_t pad_count = 0;  // 0..3
  uint8_t version = 0;    // 4 bits
  uint16_t pkey = kDefaultPkey;
  bool fecn = false;
  bool becn = false;
  Qpn dest_qpn{};
  bool ack_request = false;
  bool cont = false;
  bool more = false;
  uint8_t attempt = 0;  // 0..3
  Policy policy = Policy::kSelective;
  Psn psn;
  bool operator==(const Bth&) const = default;
};

class BthView : public HeaderView<kBthBytes> {
 public:
  using HeaderView::HeaderView;
  uint8_t opcode() const { return u8<bth_offset::kOpcode>(); }
  bool solicited() const { return flags() & bth_bit::kSolicited; }
  bool migration() const { return flags() & bth_bit::kMigration; }
  uint8_t pad_count() const { return flags() >> bth_bit::kPadShift & 3; }
  uint8_t version() const { return flags() & bth_bit::kVersionMask; }
  uint16_t pkey() const { return u16<bth_offset::kPkey>(); }
  bool fecn() const { return u8<bth_offset::kCongestion>() & bth_bit::kFecn; }
  bool becn() const { return u8<bth_offset::kCongestion>() & bth_bit::kBecn; }
  Qpn dest_qpn() const { return Qpn{u24<bth_offset::kDestQp>()}; }
  bool ack_request() const { return native() & bth_bit::kAckRequest; }
  bool cont() const { return native() & bth_bit::kCont; }
  bool more() const { return native() & bth_bit::kMore; }
  uint8_t attempt() const { return native() >> bth_bit::kAttemptShift & 3; }
  // The policy may be 3, which no enumerator names: parse() rejects it.
  Policy policy() const {
    return Policy{static_cast<uint8_t>(native() >> bth_bit::kPolicyShift & 3)};
  }
  Psn psn() const { return Psn{u24<bth_offset::kPsn>()}; }
  Bth read() const {
    return {opcode(), solicited(), migration(), pad_count(), version(),
            pkey(),   fecn(),      becn(),      dest_qpn(),  ack_request(),
            cont(),   more(),      attempt(),   policy(),    psn()};
  }

 private:
  uint8_t flags() const { return u8<bth_offset::kFlags>(); }
  uint8_t native() const { return u8<bth_offset::kAckRequest>(); }
};

// Values wider than their fields are cut to them.
inline void emit(const Bth& header, std::span<std::byte, kBthBytes> out) {
  const HeaderWriter<kBthBytes> writer(out);
  const unsigned flags =
      header.solicited * bth_bit::kSolicited | header.migration * bth_bit::kMigration |
      (header.pad_count & 3u) << bth_bit::kPadShift | (header.version & bth_bit::kVersionMask);
  const unsigned congestion = header.fecn * bth_bit::kFecn | header.becn * bth_bit::kBecn;
  const unsigned native = header.ack_request * bth_bit::kAckRequest | header.cont * bth_bit::kCont |
                          header.more * bth_bit::kMore |
                          (header.attempt & 3u) << bth_bit::kAttemptShift |
                          (static_cast<unsigned>(header.policy) & 3u) << bth_bit::kPolicyShift;
  writer.u8<bth_offset::kOpcode>(header.opcode);
  writer.u8<bth_offset::kFlags>(static_cast<uint8_t>(flags));
  writer.u16<bth_offset::kPkey>(header.pkey);
  writer.u32<bth_offset::kCongestion>(congestion << 24 | (raw(header.dest_qpn) & 0xffffff));
  writer.u32<bth_offset::kAckRequest>(native << 24 | header.psn.value());
}

std::string to_string(Policy policy);
std::string to_string(const Bth& header);

}  // namespace hostnic::wire
