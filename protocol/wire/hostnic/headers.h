// SPDX-License-Identifier: BSD-3-Clause
// The native transport's own extension headers (docs/wire.md). Numbers are bits:
//   NETH    { version 8, source QPN 24 }                             every native packet's first
//   RecvETH { receive sequence number 32, length of the message 32 } WRITE_WITH_IMM's last packet
//   ReadETH { read number 32, first response PSN 24, epoch 8, offset 32, length 32 }
//   RespETH { epoch 8, reserved 24 }
//   SackETH { base 24, word count 8, highest acceptable PSN 24, flags 8, receive SN limit 32,
//             echo PSN 24, reserved 8, NAK SN or PSN 32 }, then word count bitmap words of 64
// SackETH flags: 0x01 echo valid, 0x02 what it echoes was a duplicate, 0x04 has credit,
// 0x08 congestion mark, 0x30 attempt that it echoes, 0xc0 reserved.
// Reserved bits are sent 0 and ignored.
#pragma once

#include <string>

#include "protocol/psn.h"
#include "protocol/types.h"
#include "protocol/wire/bytes.h"

namespace hostnic::wire {

inline constexpr uint8_t kNativeVersion = 3;
inline constexpr size_t kNethBytes = 4;
inline constexpr size_t kRecvEthBytes = 8;
inline constexpr size_t kReadEthBytes = 16;
inline constexpr size_t kRespEthBytes = 4;
inline constexpr size_t kSackEthBytes = 20;
inline constexpr size_t kSackWordBytes = 8;
inline constexpr size_t kMaxSackWords = 64;  // 4096 PSNs

struct Neth {
  uint8_t version = kNativeVersion;
  Qpn src_qpn{};
  bool operator==(const Neth&) const = default;
};

class NethView : public HeaderView<kNethBytes> {
 public:
  using HeaderView::HeaderView;
  uint8_t version() const { return u8<0>(); }
  Qpn src_qpn() const { return Qpn{u24<1>()}; }
  Neth read() const { return {version(), src_qpn()}; }
};

inline void emit(const Neth& header, std::span<std::byte, kNethBytes> out) {
  HeaderWriter<kNethBytes>(out).u32<0>(uint32_t{header.version} << 24 |
                                       (raw(header.src_qpn) & 0xffffff));
}

struct RecvEth {
  uint32_t recv_sn = 0;
  uint32_t message_bytes = 0;  // length of the whole WRITE: what the receive completion reports
  bool operator==(const RecvEth&) const = default;
};

class RecvEthView : public HeaderView<kRecvEthBytes> {
 public:
  using HeaderView::HeaderView;
  uint32_t recv_sn() const { return u32<0>(); }
  uint32_t message_bytes() const { return u32<4>(); }
  RecvEth read() const { return {recv_sn(), message_bytes()}; }
};

inline void emit(const RecvEth& header, std::span<std::byte, kRecvEthBytes> out) {
  HeaderWriter<kRecvEthBytes> writer(out);
  writer.u32<0>(header.recv_sn);
  writer.u32<4>(header.message_bytes);
}

// The header that names a range of a READ (or the single range of an atomic): which READ, where its
// response PSNs start, which bytes.
struct ReadEth {
  uint32_t read_number = 0;
  Psn first_response_psn;
  uint8_t epoch = 0;
  uint32_t offset_bytes = 0;
  uint32_t length_bytes = 0;
  bool operator==(const ReadEth&) const = default;
};

namespace read_eth_offset {
inline constexpr size_t kReadNumber = 0;
inline constexpr size_t kFirstResponsePsn = 4;
inline constexpr size_t kEpoch = 7;
inline constexpr size_t kOffset = 8;
inline constexpr size_t kLength = 12;
}  // namespace read_eth_offset

class ReadEthView : public HeaderView<kReadEthBytes> {
 public:
  using HeaderView::HeaderView;
  uint32_t read_number() const { return u32<read_eth_offset::kReadNumber>(); }
  Psn first_response_psn() const { return Psn{u24<read_eth_offset::kFirstResponsePsn>()}; }
  uint8_t epoch() const { return u8<read_eth_offset::kEpoch>(); }
  uint32_t offset_bytes() const { return u32<read_eth_offset::kOffset>(); }
  uint32_t length_bytes() const { return u32<read_eth_offset::kLength>(); }
  ReadEth read() const {
    return {read_number(), first_response_psn(), epoch(), offset_bytes(), length_bytes()};
  }
};

inline void emit(const ReadEth& header, std::span<std::byte, kReadEthBytes> out) {
  const HeaderWriter<kReadEthBytes> writer(out);
  writer.u32<read_eth_offset::kReadNumber>(header.read_number);
  writer.u32<read_eth_offset::kFirstResponsePsn>(header.first_response_psn.value() << 8 |
                                                 header.epoch);
  writer.u32<read_eth_offset::kOffset>(header.offset_bytes);
  writer.u32<read_eth_offset::kLength>(header.length_bytes);
}

struct RespEth {
  uint8_t epoch = 0;
  bool operator==(const RespEth&) const = default;
};

class RespEthView : public HeaderView<kRespEthBytes> {
 public:
  using HeaderView::HeaderView;
  uint8_t epoch() const { return u8<0>(); }
  RespEth read() const { return {epoch()}; }
};

inline void emit(const RespEth& header, std::span<std::byte, kRespEthBytes> out) {
  HeaderWriter<kRespEthBytes>(out).u32<0>(uint32_t{header.epoch} << 24);
}

// The acknowledgement proper. `base` is the oldest missing PSN; bit k of the bitmap says base + k
// has been received (bit 0 is always 0). A NAK is about `base`.
struct Sack {
  Psn base;
  Psn highest_acceptable;       // last PSN inside the receiver's window
  uint32_t recv_sn_limit = 0;   // receives are posted for all SN before this; meaningless unless
                                // has_credit
  Psn echo_psn;                 // the packet that caused this ACK
  uint8_t echo_attempt = 0;     // 2 bits
  bool echo_valid = false;      // false: sent unasked (credit update)
  bool echo_duplicate = false;  // the echoed packet had been received before: a spurious resend if
                                // its attempt is not 0
  bool has_credit = false;
  bool congestion_mark = false;  // receive backlog beyond half, or ECN seen
  uint32_t nak_sn = 0;           // an RNR NAK: the receive SN that is missing; any other: the
                                 // PSN that was refused
  uint8_t word_count = 0;        // bitmap words that follow, at most kMaxSackWords
  bool operator==(const Sack&) const = default;
};

namespace sack_eth_offset {
inline constexpr size_t kBase = 0;
inline constexpr size_t kWordCount = 3;
inline constexpr size_t kHighestAcceptable = 4;
inline constexpr size_t kFlags = 7;
inline constexpr size_t kRecvSnLimit = 8;
inline constexpr size_t kEchoPsn = 12;
inline constexpr size_t kNakSn = 16;
}  // namespace sack_eth_offset

namespace sack_eth_bit {
inline constexpr uint8_t kEchoValid = 0x01;
inline constexpr uint8_t kEchoDuplicate = 0x02;
inline constexpr uint8_t kHasCredit = 0x04;
inline constexpr uint8_t kCongestionMark = 0x08;
inline constexpr uint8_t kAttemptShift = 4;
}  // namespace sack_eth_bit

class SackEthView : public HeaderView<kSackEthBytes> {
 public:
  using HeaderView::HeaderView;
  Psn base() const { return Psn{u24<sack_eth_offset::kBase>()}; }
  // The count has up to 255 in the field: parse() rejects more than kMaxSackWords.
  uint8_t word_count() const { return u8<sack_eth_offset::kWordCount>(); }
  Psn highest_acceptable() const { return Psn{u24<sack_eth_offset::kHighestAcceptable>()}; }
  uint8_t flags() const { return u8<sack_eth_offset::kFlags>(); }
  uint32_t recv_sn_limit() const { return u32<sack_eth_offset::kRecvSnLimit>(); }
  Psn echo_psn() const { return Psn{u24<sack_eth_offset::kEchoPsn>()}; }
  uint32_t nak_sn() const { return u32<sack_eth_offset::kNakSn>(); }
  Sack read() const {
    const uint8_t bits = flags();
    return {.base = base(),
            .highest_acceptable = highest_acceptable(),
            .recv_sn_limit = recv_sn_limit(),
            .echo_psn = echo_psn(),
            .echo_attempt = static_cast<uint8_t>(bits >> sack_eth_bit::kAttemptShift & 3),
            .echo_valid = (bits & sack_eth_bit::kEchoValid) != 0,
            .echo_duplicate = (bits & sack_eth_bit::kEchoDuplicate) != 0,
            .has_credit = (bits & sack_eth_bit::kHasCredit) != 0,
            .congestion_mark = (bits & sack_eth_bit::kCongestionMark) != 0,
            .nak_sn = nak_sn(),
            .word_count = word_count()};
  }
};

inline void emit(const Sack& header, std::span<std::byte, kSackEthBytes> out) {
  const HeaderWriter<kSackEthBytes> writer(out);
  const uint32_t flags = header.echo_valid * sack_eth_bit::kEchoValid |
                         header.echo_duplicate * sack_eth_bit::kEchoDuplicate |
                         header.has_credit * sack_eth_bit::kHasCredit |
                         header.congestion_mark * sack_eth_bit::kCongestionMark |
                         (header.echo_attempt & 3u) << sack_eth_bit::kAttemptShift;
  writer.u32<sack_eth_offset::kBase>(header.base.value() << 8 | header.word_count);
  writer.u32<sack_eth_offset::kHighestAcceptable>(header.highest_acceptable.value() << 8 | flags);
  writer.u32<sack_eth_offset::kRecvSnLimit>(header.recv_sn_limit);
  writer.u32<sack_eth_offset::kEchoPsn>(header.echo_psn.value() << 8);
  writer.u32<sack_eth_offset::kNakSn>(header.nak_sn);
}

std::string to_string(const Neth& header);
std::string to_string(const RecvEth& header);
std::string to_string(const ReadEth& header);
std::string to_string(const RespEth& header);
std::string to_string(const Sack& header);

}  // namespace hostnic::wire
