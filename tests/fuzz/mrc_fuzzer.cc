// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer entry for MRC's parse() and parse_trimmed(): no read outside the input, and every
// packet that is accepted says, rebuilt, the same as the input did. The first byte chooses: bit 0
// with ICRC; bit 1 only the headers lie in the first segment; bit 2 trimmed.
#include "tests/fuzz/input.h"
#include "tests/unit/wire/mrc_samples.h"

namespace hostnic::wire::mrc {
namespace {

using fuzz::require;

void check_accepted(std::span<const std::byte> input, size_t packet_bytes, const Packet& packet,
                    bool has_icrc) {
  const size_t trailer = has_icrc ? pad_bytes(packet.payload_bytes) + kIcrcBytes : 0;
  require(packet.header_bytes == header_bytes(packet) && packet.header_bytes <= kMaxHeaderBytes);
  require(packet.header_bytes + packet.payload_bytes + trailer == packet_bytes);
  const samples::Bytes rebuilt = samples::rebuild(packet, has_icrc);
  require(samples::canonical_headers(rebuilt, packet) == samples::canonical_headers(input, packet));
  require(!to_string(packet).empty());

  // What was built means what was read, and needs the headers alone.
  const samples::ExactCopy headers(rebuilt);
  Packet again;
  require(parse(headers.bytes(), packet_bytes, has_icrc, again) == ParseError::kNone);
  require(again == packet);
}

void check_trimmed(std::span<const std::byte> input, const Packet& packet) {
  require(packet.header_bytes <= input.size() && packet.payload_bytes == 0);
  require(find_opcode(packet.opcode)->is_write);
  require(packet.reth == Reth{} && packet.imm_data == 0);
}

void fuzz_one(std::span<const std::byte> data) {
  if (data.empty()) return;
  const unsigned choice = std::to_integer<unsigned>(data[0]);
  const samples::ExactCopy input(data.subspan(1));
  Packet packet;
  if ((choice & 4) != 0) {
    if (parse_trimmed(input.bytes(), packet) == ParseError::kNone)
      check_trimmed(input.bytes(), packet);
    return;
  }
  const bool has_icrc = (choice & 1) != 0;
  const size_t packet_bytes = input.size + ((choice & 2) != 0 ? 4096 : 0);
  if (parse(input.bytes(), packet_bytes, has_icrc, packet) == ParseError::kNone)
    check_accepted(input.bytes(), packet_bytes, packet, has_icrc);
}

}  // namespace
}  // namespace hostnic::wire::mrc

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hostnic::wire::mrc::fuzz_one(std::as_bytes(std::span(data, size)));
  return 0;
}
