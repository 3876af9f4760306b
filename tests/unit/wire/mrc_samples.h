// SPDX-License-Identifier: BSD-3-Clause
// MRC packets from BTH on, written by hand from the layouts in docs/mrc.md and by nothing else, and
// which of their bits are fields: for the unit test and the fuzzer.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/wire/immdt.h"
#include "protocol/wire/mrc/packet.h"

namespace hostnic::wire::mrc::samples {

using Bytes = std::vector<std::byte>;

// The text is of digits; spaces between them are for the reader.
inline Bytes from_hex(std::string_view text) {
  std::string digits;
  for (const char c : text)
    if (c != ' ') digits += c;
  Bytes bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes.push_back(std::byte(std::stoul(digits.substr(i, 2), nullptr, 16)));
  return bytes;
}

// An ICRC that nobody looks at.
inline constexpr std::string_view kIcrc = "c1 c2 c3 c4";

struct Sample {
  std::string_view name;
  std::string_view headers;
  std::string_view payload;  // with the pad that BTH announces
};

inline constexpr Sample kSamples[] = {
    {"write_first",  // solicited, ACK request, rtx, ts
     "c6 80 ffff 00 010203 b0 fffffe  0000 0007  1234 0001  1122334455667788 99aabbcc 00002000",
     "a0a1a2a3"},
    {"write_middle",
     "c7 00 ffff 00 010203 00 ffffff  0000 0007  1122334455668788 99aabbcc 00002000", "b0b1b2b3"},
    {"write_last",  // three bytes of pad
     "c8 30 ffff 00 010203 10 000000  0000 0007  1235 8001  1122334455669788 99aabbcc 00002000",
     "d0 000000"},
    {"write_last_imm",
     "c9 00 ffff 00 010203 80 000001  0005 0008  1122334455669788 99aabbcc 00002000 01020304",
     "e0e1e2e3"},
    {"write", "ca 20 ffff 00 010203 20 000002  0000 0009  1122334455667788 99aabbcc 00000002",
     "f0f1 0000"},
    {"write_imm",  // of no bytes
     "cb 80 7fff 00 010203 80 000003  0006 000a  0000000000000000 00000000 00000000 05060708", ""},
    {"ack", "d1 00 ffff 00 010203 00 000019  1f 000102", ""},
    {"nak", "d1 00 ffff 00 010203 00 00001a  62 000103", ""},
    {"endpoint_request", "d8 00 ffff 00 000002 00 00abcd  0000 00 55 80000003 00000000 1357 0001",
     ""},
    {"endpoint_probe", "d8 00 ffff 00 000002 00 00abce  0001 00 00 00000000 00000000 1358 0001",
     ""},
    {"endpoint_response",
     "d9 00 ffff 00 000002 00 00abce  0004 0000"
     "00000000 00000000 00000000 00000000 00000000 00000000 1358 0000 00000000",
     ""},
    {"sack",  // skip once; answers 3 before the cumulative PSN
     "dc 00 ffff 00 010203 20 000010  0020 fffd 1a2b3c4d 0506 0203 00 000010 07 04 0009"
     "c000000000000003  5678 0abc a9 0d0e0f",
     ""},
    {"sack_of_probe",  // always skip
     "dc 00 ffff 00 010203 00 fffff0  0042 7a7b 1a2b3c4f 0506 0203 00 fffff0 00 00 ffff"
     "0000000000000001  2468 0000 00 000001",
     ""},
    {"nack", "dd 00 ffff 00 010203 00 0a0b0c  0000 02 33 1a2b3c4e 0506 0203 00 0a0b0c 25 00 6789",
     ""},
    {"probe", "de 00 ffff 00 010203 00 000000  0000 00 44 7a7b 0000 0506 0203 2468 8001", ""},
};

inline Bytes bytes_of(const Sample& sample, bool has_icrc = true) {
  return from_hex(std::string(sample.headers) + std::string(sample.payload) +
                  (has_icrc ? std::string(kIcrc) : ""));
}

inline const Sample& sample(std::string_view name) {
  for (const Sample& each : kSamples)
    if (each.name == name) return each;
  std::abort();
}

// The bits of the headers that are fields; all others are reserved, and ignored.
inline std::string_view fields_behind_bth(Opcode opcode) {
  switch (opcode) {
    case Opcode::kAck:
      return "7fffffff";
    case Opcode::kEndpointRequest:
      return "0003 00 ff ffffffff 00000000 ffff 800f";
    case Opcode::kEndpointResponse:
      return "000c 0000 00000000 00000000 00000000 00000000 00000000 00000000 ffff 0000 00000000";
    case Opcode::kSack:
      return "0062 ffff ffffffff ffff ffff 00 ffffff ff ff ffff ffffffffffffffff "
             "ffff 7fff ff ffffff";
    case Opcode::kNack:
      return "0000 ff ff ffffffff ffff ffff 00 ffffff ff 00 ffff";
    case Opcode::kProbe:
      return "0000 00 ff ffff 0000 ffff ffff ffff 800f";
    default:
      return "";
  }
}

// A parsed packet's headers without what is reserved.
inline Bytes canonical_headers(std::span<const std::byte> bytes, const Packet& packet) {
  const OpcodeInfo& info = *find_opcode(packet.opcode);
  std::string mask =
      info.is_write ? "ff bf ffff 00 ffffff b0 ffffff" : "ff bf ffff 00 ffffff a0 ffffff";
  if (info.is_write) {
    mask += "ffffffff";
    if (packet.has_timestamp) mask += "ffff 800f";
    for (size_t i = 0; i < kRethBytes + info.has_imm * kImmDtBytes; ++i) mask += "ff";
  }
  mask += fields_behind_bth(packet.opcode);
  const Bytes fields = from_hex(mask);
  Bytes headers(bytes.begin(), bytes.begin() + packet.header_bytes);
  if (headers.size() != fields.size()) std::abort();
  for (size_t i = 0; i < headers.size(); ++i) headers[i] &= fields[i];
  // The bytes of another CC_STATE than ours are not read.
  if (packet.opcode == Opcode::kSack && !packet.has_cc_state)
    std::fill(headers.end() - kCcStateBytes, headers.end(), std::byte{0});
  return headers;
}

inline Bytes rebuild(const Packet& packet, bool has_icrc) {
  Bytes bytes(header_bytes(packet), std::byte{0xee});
  if (build(packet, has_icrc, bytes) != bytes.size()) std::abort();
  return bytes;
}

// A copy in memory of exactly this size, so that AddressSanitizer sees the first byte read too far.
struct ExactCopy {
  explicit ExactCopy(std::span<const std::byte> from)
      : memory(new std::byte[from.size()]), size(from.size()) {
    std::copy(from.begin(), from.end(), memory.get());
  }
  std::span<const std::byte> bytes() const { return {memory.get(), size}; }
  std::unique_ptr<std::byte[]> memory;
  size_t size;
};

}  // namespace hostnic::wire::mrc::samples
