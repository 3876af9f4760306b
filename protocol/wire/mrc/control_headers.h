// SPDX-License-Identifier: BSD-3-Clause
// The headers of MRC's packets that carry no payload (docs/mrc.md). Numbers are bits; each begins
// with "type 4, next header 5", which are reserved:
//   SETH     { 9, M 2, reserved 3, pr 1, reserved 1, ack PSN offset or probe id 16, entropy 32,
//              source context 16, destination context 16, reserved 8, cumulative PSN 24,
//              CC type 4, CC flags 4, MPR 8, SACK offset 16, bitmap 64 }, then CC_STATE
//   CC_STATE { timestamp 16, reserved 1, out-of-order count 15, restore 1, penalty 7,
//              received bytes 24 }
//   NETH     { 9, reserved 7, reason 8, vendor 8, entropy 32, contexts 16 and 16, reserved 8,
//              PSN 24, CC type 4, CC flags 4, reserved 8, timestamp 16 }
//   PETH     { 9, reserved 15, vendor 8, probe id 16, reserved 16, contexts 16 and 16,
//              timestamp 32 }
//   ERTH     { 9, reserved 5, operation 2, reserved 8, vendor 8, port status mask 32,
//              reserved 32, timestamp 32 }
//   EETH     { 9, reserved 3, operation 2, reserved 210, timestamp 16, reserved 48 }
// Offsets are signed. Reserved bits are sent 0 and ignored. Values wider than their fields are cut
// to them. Pure, any thread. Of the names that the native transport has, too (NETH), these are
// other headers.
#pragma once

#include "protocol/psn.h"
#include "protocol/wire/bytes.h"
#include "protocol/wire/mrc/request_headers.h"

namespace hostnic::wire::mrc {

inline constexpr size_t kSethBytes = 28;
inline constexpr size_t kCcStateBytes = 8;
inline constexpr size_t kNethBytes = 20;
inline constexpr size_t kPethBytes = 16;
inline constexpr size_t kErthBytes = 16;
inline constexpr size_t kEethBytes = 36;

inline constexpr uint32_t kSackBits = 64;
inline constexpr uint32_t kMprUnitPsns = 128;
inline constexpr uint32_t kReceivedUnitBytes = 256;
// The queue pair number that endpoint requests and responses go to.
inline constexpr Qpn kEndpointQpn{2};
// The congestion control whose CC_STATE is laid out above, as SETH names it (NSCC), and as NETH
// does.
inline constexpr uint8_t kSackCcType = 0, kNackCcType = 2;
// The credits of an AETH that limits nothing (InfiniBand 9.7.7.2.5): MRC has no others.
inline constexpr uint8_t kNoCreditLimit = 0x1f;

// What a SACK says of the path that its packet came by.
enum class PathMark : uint8_t { kNone = 0, kSkipOnce = 1, kAlwaysSkip = 2 };

// The two ends of a connection, as control packets repeat them: the lower 16 bits of QPNs.
struct Contexts {
  uint16_t source = 0, destination = 0;
  bool operator==(const Contexts&) const = default;
};

struct Seth {
  PathMark mark = PathMark::kNone;
  bool answers_probe = false;  // pr
  int16_t ack_offset = 0;      // cumulative_psn + this is the PSN that is answered; unless
                               // answers_probe
  uint16_t probe_id = 0;       // the probe that is answered; where answers_probe
  uint32_t entropy = 0;        // of the packet that is answered
  Contexts contexts;
  Psn cumulative_psn;  // all before it, and itself, have come
  uint8_t cc_type = kSackCcType;
  uint8_t cc_flags = 0;
  uint8_t mpr_units = 0;    // the receiver's window, in kMprUnitPsns; 0: does not change
  int16_t sack_offset = 0;  // the bitmap's bit k is cumulative_psn + sack_offset + k
  uint64_t bitmap = 0;
  bool operator==(const Seth&) const = default;

  Psn ack_psn() const { return cumulative_psn + static_cast<uint32_t>(int32_t{ack_offset}); }
  Psn bitmap_psn() const { return cumulative_psn + static_cast<uint32_t>(int32_t{sack_offset}); }
};

namespace seth_offset {
inline constexpr size_t kFlags = 0;
inline constexpr size_t kAckOffset = 2;
inline constexpr size_t kEntropy = 4;
inline constexpr size_t kSourceContext = 8;
inline constexpr size_t kDestinationContext = 10;
inline constexpr size_t kCumulativePsn = 13;
inline constexpr size_t kCc = 16;
inline constexpr size_t kMpr = 17;
inline constexpr size_t kSackOffset = 18;
inline constexpr size_t kBitmap = 20;
}  // namespace seth_offset

class SethView : public HeaderView<kSethBytes> {
 public:
  using HeaderView::HeaderView;
  // The mark may be 3, which is reserved: parse() rejects it.
  PathMark mark() const {
    return PathMark{static_cast<uint8_t>(u16<seth_offset::kFlags>() >> 5 & 3)};
  }
  bool answers_probe() const { return u16<seth_offset::kFlags>() & 0x0002; }
  Seth read() const {
    const uint16_t word = u16<seth_offset::kAckOffset>();
    const uint8_t cc = u8<seth_offset::kCc>();
    return {
        .mark = mark(),
        .answers_probe = answers_probe(),
        .ack_offset = answers_probe() ? int16_t{0} : static_cast<int16_t>(word),
        .probe_id = answers_probe() ? word : uint16_t{0},
        .entropy = u32<seth_offset::kEntropy>(),
        .contexts = {u16<seth_offset::kSourceContext>(), u16<seth_offset::kDestinationContext>()},
        .cumulative_psn = Psn{u24<seth_offset::kCumulativePsn>()},
        .cc_type = static_cast<uint8_t>(cc >> 4),
        .cc_flags = static_cast<uint8_t>(cc & 0x0f),
        .mpr_units = u8<seth_offset::kMpr>(),
        .sack_offset = static_cast<int16_t>(u16<seth_offset::kSackOffset>()),
        .bitmap = u64<seth_offset::kBitmap>()};
  }
};

inline void emit(const Seth& header, std::span<std::byte, kSethBytes> out) {
  const HeaderWriter<kSethBytes> writer(out);
  const unsigned flags = (static_cast<unsigned>(header.mark) & 3u) << 5 | header.answers_probe << 1;
  const unsigned word =
      header.answers_probe ? header.probe_id : static_cast<uint16_t>(header.ack_offset);
  const unsigned cc = (header.cc_type & 0x0fu) << 4 | (header.cc_flags & 0x0fu);
  writer.u16<seth_offset::kFlags>(static_cast<uint16_t>(flags));
  writer.u16<seth_offset::kAckOffset>(static_cast<uint16_t>(word));
  writer.u32<seth_offset::kEntropy>(header.entropy);
  writer.u16<seth_offset::kSourceContext>(header.contexts.source);
  writer.u16<seth_offset::kDestinationContext>(header.contexts.destination);
  writer.u32<seth_offset::kCumulativePsn - 1>(header.cumulative_psn.value());
  writer.u8<seth_offset::kCc>(static_cast<uint8_t>(cc));
  writer.u8<seth_offset::kMpr>(header.mpr_units);
  writer.u16<seth_offset::kSackOffset>(static_cast<uint16_t>(header.sack_offset));
  writer.u64<seth_offset::kBitmap>(header.bitmap);
}

// What the receiver says to the sender's congestion control.
struct CcState {
  uint16_t timestamp = 0;           // of the packet that is answered
  uint16_t out_of_order_count = 0;  // 15 bits: packets beyond the cumulative PSN
  bool restores_window = false;     // the window is to be what it was before the penalty
  uint8_t window_penalty = 0;       // 7 bits; 0: none, 127: one packet a round trip
  uint32_t received_units = 0;      // 24 bits: bytes received, in kReceivedUnitBytes, modulo 2^24
  bool operator==(const CcState&) const = default;
};

class CcStateView : public HeaderView<kCcStateBytes> {
 public:
  using HeaderView::HeaderView;
  CcState read() const {
    return {.timestamp = u16<0>(),
            .out_of_order_count = static_cast<uint16_t>(u16<2>() & 0x7fff),
            .restores_window = (u8<4>() & 0x80) != 0,
            .window_penalty = static_cast<uint8_t>(u8<4>() & 0x7f),
            .received_units = u24<5>()};
  }
};

inline void emit(const CcState& header, std::span<std::byte, kCcStateBytes> out) {
  const HeaderWriter<kCcStateBytes> writer(out);
  writer.u16<0>(header.timestamp);
  writer.u16<2>(header.out_of_order_count & 0x7fff);
  writer.u32<4>(uint32_t{header.restores_window} << 31 | (header.window_penalty & 0x7fu) << 24 |
                (header.received_units & 0xffffff));
}

// Why a packet was not taken. The numbers are Ultra Ethernet's; others may come, and are kept.
enum class NackReason : uint8_t {
  kTrimmed = 0x01,         // a switch cut the payload off
  kTrimmedLastHop = 0x02,  // the switch before the receiver did
  kNoBitmap = 0x06,        // nothing left to remember it by
  kNoPacketBuffer = 0x07,
  kNoResource = 0x0a,
  kPsnOutOfWindow = 0x0b,
  kUnexpectedEvent = 0x19,  // the only one that no repetition mends
};

struct Neth {
  NackReason reason = NackReason::kTrimmed;
  uint8_t vendor = 0;
  uint32_t entropy = 0;  // of the packet that is refused
  Contexts contexts;
  Psn psn;  // that is refused
  uint8_t cc_type = kNackCcType;
  uint8_t cc_flags = 0;
  uint16_t timestamp = 0;  // of the packet that is refused
  bool operator==(const Neth&) const = default;
};

namespace neth_offset {
inline constexpr size_t kReason = 2;
inline constexpr size_t kVendor = 3;
inline constexpr size_t kEntropy = 4;
inline constexpr size_t kSourceContext = 8;
inline constexpr size_t kDestinationContext = 10;
inline constexpr size_t kPsn = 13;
inline constexpr size_t kCc = 16;
inline constexpr size_t kTimestamp = 18;
}  // namespace neth_offset

class NethView : public HeaderView<kNethBytes> {
 public:
  using HeaderView::HeaderView;
  Neth read() const {
    const uint8_t cc = u8<neth_offset::kCc>();
    return {
        .reason = NackReason{u8<neth_offset::kReason>()},
        .vendor = u8<neth_offset::kVendor>(),
        .entropy = u32<neth_offset::kEntropy>(),
        .contexts = {u16<neth_offset::kSourceContext>(), u16<neth_offset::kDestinationContext>()},
        .psn = Psn{u24<neth_offset::kPsn>()},
        .cc_type = static_cast<uint8_t>(cc >> 4),
        .cc_flags = static_cast<uint8_t>(cc & 0x0f),
        .timestamp = u16<neth_offset::kTimestamp>()};
  }
};

inline void emit(const Neth& header, std::span<std::byte, kNethBytes> out) {
  const HeaderWriter<kNethBytes> writer(out);
  const unsigned cc = (header.cc_type & 0x0fu) << 4 | (header.cc_flags & 0x0fu);
  writer.u16<0>(0);
  writer.u8<neth_offset::kReason>(static_cast<uint8_t>(header.reason));
  writer.u8<neth_offset::kVendor>(header.vendor);
  writer.u32<neth_offset::kEntropy>(header.entropy);
  writer.u16<neth_offset::kSourceContext>(header.contexts.source);
  writer.u16<neth_offset::kDestinationContext>(header.contexts.destination);
  writer.u32<neth_offset::kPsn - 1>(header.psn.value());
  writer.u16<neth_offset::kCc>(static_cast<uint16_t>(cc << 8));
  writer.u16<neth_offset::kTimestamp>(header.timestamp);
}

struct Peth {
  uint8_t vendor = 0;
  uint16_t probe_id = 0;
  Contexts contexts;
  Timestamp timestamp;
  bool operator==(const Peth&) const = default;
};

class PethView : public HeaderView<kPethBytes> {
 public:
  using HeaderView::HeaderView;
  Peth read() const {
    return {.vendor = u8<3>(),
            .probe_id = u16<4>(),
            .contexts = {u16<8>(), u16<10>()},
            .timestamp = TsethView(std::span<const std::byte, kTsethBytes>(field<12, kTsethBytes>(),
                                                                           kTsethBytes))
                             .read()};
  }
};

inline void emit(const Peth& header, std::span<std::byte, kPethBytes> out) {
  const HeaderWriter<kPethBytes> writer(out);
  writer.u32<0>(header.vendor);
  writer.u16<4>(header.probe_id);
  writer.u16<6>(0);
  writer.u16<8>(header.contexts.source);
  writer.u16<10>(header.contexts.destination);
  emit(header.timestamp, out.subspan<12, kTsethBytes>());
}

enum class EndpointOperation : uint8_t { kPortStatus = 0, kPathProbe = 1 };

// A question to a node. Its id is in BTH's PSN, bits 15 to 0.
struct Erth {
  EndpointOperation operation = EndpointOperation::kPortStatus;
  uint8_t vendor = 0;
  uint32_t port_status_mask = 0;  // kPortStatus: a bit for each port of the sender
  Timestamp timestamp;
  bool operator==(const Erth&) const = default;
};

class ErthView : public HeaderView<kErthBytes> {
 public:
  using HeaderView::HeaderView;
  // The operation may be 2 or 3, which are reserved: parse() rejects them.
  EndpointOperation operation() const {
    return EndpointOperation{static_cast<uint8_t>(u8<1>() & 3)};
  }
  Erth read() const {
    return {.operation = operation(),
            .vendor = u8<3>(),
            .port_status_mask = u32<4>(),
            .timestamp = TsethView(std::span<const std::byte, kTsethBytes>(field<12, kTsethBytes>(),
                                                                           kTsethBytes))
                             .read()};
  }
};

inline void emit(const Erth& header, std::span<std::byte, kErthBytes> out) {
  const HeaderWriter<kErthBytes> writer(out);
  writer.u32<0>((static_cast<uint32_t>(header.operation) & 3) << 16 | header.vendor);
  writer.u32<4>(header.port_status_mask);
  writer.u32<8>(0);
  emit(header.timestamp, out.subspan<12, kTsethBytes>());
}

// The answer, with the question's id in BTH's PSN.
struct Eeth {
  EndpointOperation operation = EndpointOperation::kPortStatus;
  uint16_t timestamp = 0;  // the question's
  bool operator==(const Eeth&) const = default;
};

class EethView : public HeaderView<kEethBytes> {
 public:
  using HeaderView::HeaderView;
  // As ErthView's.
  EndpointOperation operation() const {
    return EndpointOperation{static_cast<uint8_t>(u8<1>() >> 2 & 3)};
  }
  uint16_t timestamp() const { return u16<28>(); }
  Eeth read() const { return {operation(), timestamp()}; }
};

inline void emit(const Eeth& header, std::span<std::byte, kEethBytes> out) {
  const HeaderWriter<kEethBytes> writer(out);
  std::memset(writer.field<0, kEethBytes>(), 0, kEethBytes);
  writer.u8<1>(static_cast<uint8_t>((static_cast<unsigned>(header.operation) & 3u) << 2));
  writer.u16<28>(header.timestamp);
}

}  // namespace hostnic::wire::mrc
