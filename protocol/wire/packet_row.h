// Packets in rows. Most packets of a long message differ from the one before in two header fields,
// PSN and RETH address: the sender steps from one packet's headers to the next one's, and the
// receiver compares instead of parsing. Pure, no thread of its own.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "protocol/wire/packet.h"

namespace hostnic::wire {

// Packets that come in rows: kWriteOnly, kSend and kReadResponse; upper bound of their headers.
constexpr bool comes_in_rows(Opcode opcode) {
  return opcode == Opcode::kWriteOnly || opcode == Opcode::kSend || opcode == Opcode::kReadResponse;
}
inline constexpr size_t kMaxRowHeaderBytes =
    kFlowBytes + kBthBytes + kNethBytes + kRethBytes + kRespEthBytes;

// From the headers of such a packet in the middle of its message, as build() wrote them, to those
// of the packet behind it, which carries as many bytes: PSN and RETH address move on, in `packet`
// and in `headers`.
void step(Packet& packet, std::span<std::byte> headers);

// From the headers of a kWriteOnly or kSend packet, as build() wrote them, to those of another one
// of the same flow, opcode and payload size: PSN, flags and RETH, as `packet` says.
void restep(const Packet& packet, std::span<std::byte> headers);

// parse() for a row of packets.
class RowParser {
 public:
  // As parse() into the packet before: the same answer, and on kNone the same packet(), for any
  // bytes.
  ParseError parse(std::span<const std::byte> first_segment, size_t packet_bytes, bool has_icrc);
  const Packet& packet() const { return packet_; }

 private:
  bool continues_row(std::span<const std::byte> first_segment, size_t packet_bytes,
                     bool has_icrc) const;

  Packet packet_;
  // The headers of packet_, if it can have a follower, and what it came with; 0 bytes: it can't.
  std::array<std::byte, kMaxRowHeaderBytes> headers_;
  size_t header_bytes_ = 0, packet_bytes_ = 0;
  bool has_icrc_ = false;
};

}  // namespace hostnic::wire
