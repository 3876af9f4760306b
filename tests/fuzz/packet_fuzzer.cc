// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer entry for parse(): no read outside the input, and every packet that is accepted says,
// rebuilt, the same as the input did. The first byte chooses: bit 0 with ICRC; bit 1 repair the IP
// checksum, without which the fuzzer would spend its life guessing it; bit 2 only the headers lie
// in the first segment. Then the same for the input as the next packet behind itself with one byte
// changed, and the other way round, by DeltaParser, which has to say what parse() says.
//
//   clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -I. tests/fuzz/packet_fuzzer.cc \
//     protocol/wire/*.cc -o /tmp/packet_fuzzer && /tmp/packet_fuzzer -max_len=700
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "protocol/wire/hostnic/segment_train.h"
#include "tests/unit/wire/samples.h"

namespace hostnic::wire {
namespace {

constexpr auto in_standard = [](const Packet&) { return Dialect::kRocev2; };

void require(bool condition) {
  if (!condition) std::abort();  // libFuzzer prints the stack and keeps the input
}

void check_accepted(std::span<const std::byte> input, const Packet& packet, bool has_icrc) {
  const size_t trailer = has_icrc ? pad_bytes(packet.payload_bytes) + kIcrcBytes : 0;
  require(packet.header_bytes == header_bytes(packet));
  require(packet.header_bytes + packet.payload_bytes + trailer <= input.size());
  const samples::Bytes rebuilt = samples::rebuild(packet, has_icrc);
  require(samples::canonical_headers(rebuilt, packet) == samples::canonical_headers(input, packet));
  require(!to_string(packet).empty());

  // The headers alone are enough.
  const samples::ExactCopy headers(input.first(packet.header_bytes));
  Packet again;
  require(parse(headers.bytes(), input.size(), has_icrc, again) == ParseError::kNone);
  require(samples::rebuild(again, has_icrc) == rebuilt);
}

ParseError parse_in(Dialect dialect, std::span<const std::byte> bytes, size_t packet_bytes,
                    bool has_icrc, Packet& out) {
  const ParseError error = parse_bth(bytes, packet_bytes, has_icrc, out);
  return error != ParseError::kNone ? error : parse_extensions(dialect, bytes, has_icrc, out);
}

// One behind the other, twice; by packets' own dialects, and on a queue pair of the standard's.
void check_deltas(std::span<const std::byte> first, std::span<const std::byte> second,
                  size_t packet_bytes, bool has_icrc) {
  DeltaParser parser, standard_parser;
  for (const auto bytes : {first, second, first, second}) {
    Packet packet;
    require(standard_parser.parse(bytes, packet_bytes, has_icrc, in_standard) ==
            parse_in(Dialect::kRocev2, bytes, packet_bytes, has_icrc, packet));
    const ParseError error = parse(bytes, packet_bytes, has_icrc, packet);
    require(parser.parse(bytes, packet_bytes, has_icrc, samples::by_opcode) == error);
    if (error != ParseError::kNone) continue;
    require(samples::rebuild(parser.packet(), has_icrc) == samples::rebuild(packet, has_icrc));
    require(parser.packet().psn == packet.psn &&
            parser.packet().payload_bytes == packet.payload_bytes &&
            parser.packet().unread_headers == packet.unread_headers);
  }
}

// The headers of a WRITE Only in the standard's dialect: BTH's reserved bits say nothing, and its
// length may be any.
void check_standard_write(std::span<const std::byte> bytes, size_t packet_bytes, bool has_icrc,
                          const Packet& packet) {
  require(!packet.cont && !packet.more && packet.attempt == 0);
  const samples::Bytes rebuilt = samples::rebuild(packet, has_icrc);
  Packet again;
  require(parse_bth(rebuilt, packet_bytes, has_icrc, again) == ParseError::kNone &&
          parse_extensions(Dialect::kRocev2, rebuilt, has_icrc, again) == ParseError::kNone);
  require(again.reth == packet.reth && again.psn == packet.psn &&
          again.payload_bytes == packet.payload_bytes);
  require(std::equal(rebuilt.begin() + kFlowBytes + kBthBytes, rebuilt.end(),
                     bytes.begin() + kFlowBytes + kBthBytes));
}

// A queue pair may be of another dialect than the opcode: then the opcode is unknown, whatever
// else; but for a WRITE Only, which both have.
void check_dialects(std::span<const std::byte> bytes, size_t packet_bytes, bool has_icrc,
                    ParseError error) {
  Packet packet;
  if (parse_bth(bytes, packet_bytes, has_icrc, packet) != ParseError::kNone) return;
  const Opcode opcode = packet.opcode;
  for (const Dialect dialect : {Dialect::kHostnic, Dialect::kRocev2}) {
    Packet whole = packet;
    const ParseError said = parse_extensions(dialect, bytes, has_icrc, whole);
    if (find_opcode(dialect, opcode) == nullptr) {
      require(said == ParseError::kUnknownOpcode);
    } else if (dialect == dialect_of(opcode)) {
      require(said == error);
    } else if (said == ParseError::kNone) {
      check_standard_write(bytes, packet_bytes, has_icrc, whole);
    }
  }
}

void fuzz_one(std::span<const std::byte> data) {
  if (data.empty()) return;
  const unsigned choice = std::to_integer<unsigned>(data[0]);
  samples::Bytes input(data.begin() + 1, data.end());
  if ((choice & 2) != 0 && input.size() >= kEthernetBytes + kIpv4Bytes) {
    samples::fix_ip_checksum(input);
  }
  const bool has_icrc = (choice & 1) != 0;
  const size_t packet_bytes = input.size() + ((choice & 4) != 0 ? 4096 : 0);
  const samples::ExactCopy copy(input);
  Packet packet;
  const ParseError error = parse(copy.bytes(), packet_bytes, has_icrc, packet);
  if (error == ParseError::kNone && (choice & 4) == 0) check_accepted(input, packet, has_icrc);
  check_dialects(copy.bytes(), packet_bytes, has_icrc, error);

  if (input.empty()) return;
  samples::Bytes changed = input;
  changed[(choice >> 3) * 3 % changed.size()] ^= data.back();
  check_deltas(samples::ExactCopy(changed).bytes(), copy.bytes(), packet_bytes, has_icrc);
}

}  // namespace
}  // namespace hostnic::wire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hostnic::wire::fuzz_one(std::as_bytes(std::span(data, size)));
  return 0;
}
