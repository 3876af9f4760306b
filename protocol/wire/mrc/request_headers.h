// SPDX-License-Identifier: BSD-3-Clause
// BTH as MRC has it, and the headers of its requests that RoCEv2 does not have (docs/mrc.md).
// Numbers are bits:
//   BTH    { as RoCEv2's, but byte 8: A 1, reserved 1, rtx 1, ts 1, reserved 4; FECN and BECN are
//            reserved }
//   METH   { RQMSN 16, MSN 16 }                                     every request's first
//   TSETH  { timestamp 16, tsr 1, reserved 11, format type 4 }      where BTH's ts is set
// RETH, ImmDt and AETH are those of the standard (wire/reth.h, immdt.h, aeth.h). Reserved bits are
// sent 0 and ignored. Values wider than their fields are cut to them. Pure, any thread.
#pragma once

#include "protocol/psn.h"
#include "protocol/types.h"
#include "protocol/wire/bth.h"
#include "protocol/wire/bytes.h"
#include "protocol/wire/mrc/opcodes.h"

namespace hostnic::wire::mrc {

inline constexpr size_t kMethBytes = 4;
inline constexpr size_t kTsethBytes = 4;

namespace bth_bit {
inline constexpr uint8_t kRetransmission = 0x20;
inline constexpr uint8_t kHasTimestamp = 0x10;
}  // namespace bth_bit

struct Bth {
  Opcode opcode = Opcode::kWriteOnly;
  bool solicited = false;
  uint8_t pad_count = 0;  // 0..3
  uint8_t version = 0;    // 4 bits
  uint16_t pkey = kDefaultPkey;
  Qpn dest_qpn{};
  bool ack_request = false;  // the sender wants a SACK now
  bool retransmission =
      false;                   // the PSN has left before; of an answer: the packet it answers is so
  bool has_timestamp = false;  // TSETH follows METH
  Psn psn;
  bool operator==(const Bth&) const = default;
};

class BthView : public HeaderView<kBthBytes> {
 public:
  using HeaderView::HeaderView;
  // The opcode may be one that no enumerator names: parse() rejects it.
  Opcode opcode() const { return Opcode{u8<bth_offset::kOpcode>()}; }
  bool solicited() const { return flags() & wire::bth_bit::kSolicited; }
  uint8_t pad_count() const { return flags() >> wire::bth_bit::kPadShift & 3; }
  uint8_t version() const { return flags() & wire::bth_bit::kVersionMask; }
  uint16_t pkey() const { return u16<bth_offset::kPkey>(); }
  Qpn dest_qpn() const { return Qpn{u24<bth_offset::kDestQp>()}; }
  bool ack_request() const { return bits() & wire::bth_bit::kAckRequest; }
  bool retransmission() const { return bits() & bth_bit::kRetransmission; }
  bool has_timestamp() const { return bits() & bth_bit::kHasTimestamp; }
  Psn psn() const { return Psn{u24<bth_offset::kPsn>()}; }
  Bth read() const {
    return {opcode(),   solicited(),   pad_count(),      version(),       pkey(),
            dest_qpn(), ack_request(), retransmission(), has_timestamp(), psn()};
  }

 private:
  uint8_t flags() const { return u8<bth_offset::kFlags>(); }
  uint8_t bits() const { return u8<bth_offset::kAckRequest>(); }
};

inline void emit(const Bth& header, std::span<std::byte, kBthBytes> out) {
  const HeaderWriter<kBthBytes> writer(out);
  const unsigned flags = header.solicited * wire::bth_bit::kSolicited |
                         (header.pad_count & 3u) << wire::bth_bit::kPadShift |
                         (header.version & wire::bth_bit::kVersionMask);
  const unsigned bits = header.ack_request * wire::bth_bit::kAckRequest |
                        header.retransmission * bth_bit::kRetransmission |
                        header.has_timestamp * bth_bit::kHasTimestamp;
  writer.u8<bth_offset::kOpcode>(static_cast<uint8_t>(header.opcode));
  writer.u8<bth_offset::kFlags>(static_cast<uint8_t>(flags));
  writer.u16<bth_offset::kPkey>(header.pkey);
  writer.u32<bth_offset::kCongestion>(raw(header.dest_qpn) & 0xffffff);
  writer.u32<bth_offset::kAckRequest>(bits << 24 | header.psn.value());
}

// Which message a request belongs to. Every packet of a message says the same.
struct Meth {
  uint16_t rqmsn = 0;  // of a WRITE with immediate data: which receive it consumes; else 0
  uint16_t msn = 0;
  bool operator==(const Meth&) const = default;
};

class MethView : public HeaderView<kMethBytes> {
 public:
  using HeaderView::HeaderView;
  uint16_t rqmsn() const { return u16<0>(); }
  uint16_t msn() const { return u16<2>(); }
  Meth read() const { return {rqmsn(), msn()}; }
};

inline void emit(const Meth& header, std::span<std::byte, kMethBytes> out) {
  const HeaderWriter<kMethBytes> writer(out);
  writer.u16<0>(header.rqmsn);
  writer.u16<2>(header.msn);
}

// The moment at which a packet left, in its sender's clock, modulo 65536. Its unit is the sender's
// business: nobody else computes with it, the answer brings it back.
struct Timestamp {
  static constexpr uint8_t kFormat = 1;  // the only one that is known
  static constexpr uint32_t kUnitNs = 128;

  uint16_t value = 0;        // units of 128 ns, unless is_coarse
  bool is_coarse = false;    // tsr: a unit of the sender's own
  uint8_t format = kFormat;  // 4 bits; of another one the value means nothing that is known
  bool operator==(const Timestamp&) const = default;
};

// The four bytes of a timestamp, which TSETH is, and which PETH and ERTH end with.
class TsethView : public HeaderView<kTsethBytes> {
 public:
  using HeaderView::HeaderView;
  uint16_t value() const { return u16<0>(); }
  bool is_coarse() const { return u8<2>() & 0x80; }
  uint8_t format() const { return u8<3>() & 0x0f; }
  Timestamp read() const { return {value(), is_coarse(), format()}; }
};

inline void emit(const Timestamp& header, std::span<std::byte, kTsethBytes> out) {
  const HeaderWriter<kTsethBytes> writer(out);
  writer.u16<0>(header.value);
  writer.u16<2>(static_cast<uint16_t>(header.is_coarse << 15 | (header.format & 0x0f)));
}

}  // namespace hostnic::wire::mrc
