// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/capture_packet.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "protocol/hostif/descriptors.h"
#include "protocol/wire/icrc.h"

namespace hostnic::cli {
namespace {

constexpr size_t kIp = wire::kEthernetBytes, kUdp = kIp + wire::kIpv4Bytes;
constexpr size_t kBth = wire::kFlowBytes;
constexpr size_t kIpTotalBytes = 2;  // offset of the length in an IPv4 header
constexpr size_t kIpProtocol = 9;
constexpr uint8_t kPadShift = 4;
constexpr uint8_t kIpv4WithoutOptions = 0x45, kUdpProtocol = 17;

// Whether the bytes begin as a RoCEv2 packet of this NIC's does, all of whose headers up to BTH
// were kept.
bool is_roce(std::span<const std::byte> bytes, uint32_t packet_bytes) {
  if (bytes.size() < wire::kFlowBytes + wire::kBthBytes) return false;
  const std::byte* const at = bytes.data();
  return wire::load_be16(at + wire::ethernet_offset::kEtherType) == wire::kEtherTypeIpv4 &&
         wire::load_u8(at + kIp) == kIpv4WithoutOptions &&
         wire::load_u8(at + kIp + kIpProtocol) == kUdpProtocol &&
         wire::load_be16(at + kUdp + wire::udp_offset::kDstPort) == wire::kRoceUdpPort &&
         wire::load_be16(at + kIp + kIpTotalBytes) + wire::kEthernetBytes == packet_bytes &&
         wire::load_be16(at + kUdp + wire::udp_offset::kLength) + wire::kIpv4Bytes ==
             wire::load_be16(at + kIp + kIpTotalBytes);
}

// What a counter's change says about a packet, in the order in which it is said.
struct Words {
  std::string_view counter, text;
};
constexpr std::array kWords = {
    Words{"rx_parse_error", "refused: no valid RoCEv2 packet"},
    Words{"rx_icrc_error", "refused: wrong ICRC"},
    Words{"rx_not_ours", "not for this NIC"},
    Words{"rx_unknown_qp", "refused: no such queue pair"},
    Words{"rx_wrong_tag", "refused: of an older connection, or of another than the connected peer"},
    Words{"rx_wrong_service", "refused: of another service than its queue pair"},
    Words{"rx_wrong_qkey", "refused: wrong Q_Key"},
    Words{"policy_mismatch", "refused: its sender recovers by another policy"},
    Words{"uc_access_refused", "dropped: key, bounds or right"},
    Words{"rx_no_receive", "dropped: no receive is posted"},
    Words{"rx_too_long", "dropped: longer than allowed"},
    Words{"uc_incomplete", "a message is dropped, of which a packet did not come"},
    Words{"out_of_window", "dropped: beyond the receive window"},
    Words{"reorder_full", "dropped: the reorder buffer is full"},
    Words{"stale_epoch", "dropped: the answer to an older pull"},
    Words{"management_dropped", "dropped: no room for management datagrams"},
    Words{"mrc_trimmed", "refused: a switch has cut it off"},
    Words{"duplicate_request", "duplicate"},
    Words{"packet_seq_err", "a gap opens"},
    Words{"out_of_sequence", "ahead of what is missing"},
    Words{"reorder_buffered", "held"},
    Words{"rnr_nak_sent", "answered: receiver not ready"},
    Words{"nak_sent", "refused: fatal NAK"},
    Words{"read_pulls_refused", "refused: it would be read out of order"},
    Words{"read_requests_served", "answered"},
    Words{"read_answers_repeated", "answered again"},
    Words{"atomics_executed", "executed"},
    Words{"atomics_replayed", "answered from the record"},
    Words{"time_wait_acks_sent", "acknowledged for a connection that has ended"},
    Words{"rnr_nak_received", "says: receiver not ready"},
    Words{"nak_received", "says: fatal NAK"},
    Words{"mem_fd_put_off", "put off: the client's mappings change"},
    Words{"unfilled_put_off", "put off: the memory is not there yet"},
};

std::string_view name_of(const CaptureChange& change, std::span<const std::string> counters) {
  return change.counter < counters.size() ? std::string_view(counters[change.counter])
                                          : std::string_view("unknown");
}

uint32_t change_of(const CaptureRecord& record, std::span<const std::string> counters,
                   std::string_view name) {
  for (uint32_t i = 0; i < record.change_count; ++i)
    if (name_of(record.changes[i], counters) == name) return record.changes[i].by;
  return 0;
}

void say(std::string& text, std::string_view words) {
  if (!text.empty()) text += ", ";
  text += words;
}

std::string by_rule(const CaptureRecord& record) {
  const char* const side = (record.flags & kCaptureAtTransmit) != 0 ? "tx" : "rx";
  return record.rule == 0 ? fmt::format("{} impairments", side)
                          : fmt::format("{} impairment rule {}", side, record.rule);
}

// What impairments did, or nothing.
std::string impairments_of(const CaptureRecord& record) {
  std::string text;
  if (record.impaired == 0) return text;
  const std::string rule = by_rule(record);
  if ((record.impaired & kImpairedCopy) != 0) say(text, "copy made by " + rule);
  if ((record.impaired & kImpairedHeldBack) != 0) say(text, "held back by " + rule);
  if ((record.impaired & kImpairedCorrupted) != 0) say(text, "corrupted by " + rule);
  if ((record.impaired & kImpairedMarked) != 0) say(text, "ECN marked by " + rule);
  if ((record.impaired & kImpairedDropped) != 0) say(text, "dropped by " + rule);
  if ((record.impaired & kImpairedRateDropped) != 0)
    say(text, "dropped by " + rule + ": its queue is full");
  if ((record.impaired & kImpairedQueueDropped) != 0)
    say(text, "dropped by " + rule + ": no room to wait in");
  return text;
}

const char* state_text(uint8_t state) {
  static constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return state < std::size(kNames) ? kNames[state] : nullptr;
}

// What a sent packet is an answer to, or a received one asks or answers.
std::string subject_of(const wire::Packet& p) {
  switch (p.opcode) {
    case wire::Opcode::kReadResponse:
    case wire::Opcode::kAtomicResponse:
      return fmt::format("answers request {}", p.reth.key);
    case wire::Opcode::kAck:
      return p.sack.echo_valid ? fmt::format("answers PSN {}", p.sack.echo_psn.value())
                               : std::string();
    case wire::Opcode::kRcAck:
    case wire::Opcode::kRcAtomicAck:
    case wire::Opcode::kRcReadFirst:
    case wire::Opcode::kRcReadMiddle:
    case wire::Opcode::kRcReadLast:
    case wire::Opcode::kRcReadOnly:
      return fmt::format("answers PSN {}", p.psn.value());
    default:
      return {};
  }
}

std::string received(const CaptureRecord& record, std::span<const std::string> counters) {
  std::string text;
  for (const Words& words : kWords) {
    if (change_of(record, counters, words.counter) == 0) continue;
    if (words.counter == "rx_unknown_qp" && state_text(record.qp_state) != nullptr)
      say(text, fmt::format("refused: its queue pair is in {}", state_text(record.qp_state)));
    else if (words.counter == "reorder_buffered" && (record.flags & kCaptureHasExpected) != 0)
      say(text, fmt::format("held until PSN {} has come", record.expected_psn));
    else if (words.counter == "out_of_sequence" && (record.flags & kCaptureHasExpected) != 0)
      say(text, fmt::format("ahead of PSN {}", record.expected_psn));
    else
      say(text, words.text);
  }
  const uint64_t placed = uint64_t{change_of(record, counters, "bytes_copied_mapped")} +
                          change_of(record, counters, "bytes_copied_mem_fd");
  if (placed != 0) say(text, fmt::format("{} bytes placed", placed));
  if (const uint32_t late = change_of(record, counters, "late_bytes_skipped"); late != 0)
    say(text, fmt::format("{} bytes not written over newer data", late));
  return text;
}

}  // namespace

uint32_t make_frame(const CaptureRecord& record, std::vector<std::byte>& bytes) {
  if ((record.flags & kCaptureAsItIs) != 0 || !is_roce(bytes, record.packet_bytes))
    return record.packet_bytes;
  std::byte* const at = bytes.data();
  const uint16_t udp_bytes = wire::load_be16(at + kUdp + wire::udp_offset::kLength);
  // All headers are of whole words.
  const uint32_t pad = wire::pad_bytes(udp_bytes);
  const auto more = static_cast<uint16_t>(pad + wire::kIcrcBytes);
  const uint16_t ip_bytes = wire::load_be16(at + kIp + kIpTotalBytes);
  const auto ip_bytes_now = static_cast<uint16_t>(ip_bytes + more);
  wire::store_be16(at + kIp + kIpTotalBytes, ip_bytes_now);
  std::byte* const checksum = at + kIp + wire::ipv4_offset::kChecksum;
  wire::store_be16(checksum,
                   wire::update_checksum(wire::load_be16(checksum), ip_bytes, ip_bytes_now));
  wire::store_be16(at + kUdp + wire::udp_offset::kLength, static_cast<uint16_t>(udp_bytes + more));
  const auto flags = wire::load_u8(at + kBth + wire::bth_offset::kFlags);
  wire::store_u8(at + kBth + wire::bth_offset::kFlags,
                 static_cast<uint8_t>(flags | pad << kPadShift));
  const uint32_t frame_bytes = record.packet_bytes + more;
  if (record.captured_bytes != record.packet_bytes) return frame_bytes;
  bytes.resize(frame_bytes);
  std::byte* const ip = bytes.data() + kIp;
  const size_t covered = frame_bytes - kIp - wire::kIcrcBytes;
  wire::store_icrc(ip + covered,
                   wire::icrc_in_place(ip, covered, [](const std::byte* data, size_t length) {
                     return wire::crc32_eth({data, length});
                   }));
  return frame_bytes;
}

std::optional<wire::Packet> headers_in(std::span<const std::byte> frame, uint32_t frame_bytes) {
  wire::Packet p;
  if (wire::parse(frame, frame_bytes, true, p) != wire::ParseError::kNone) return std::nullopt;
  return p;
}

std::string verdict_of(const CaptureRecord& record, std::span<const std::string> counters,
                       const wire::Packet* headers) {
  std::string text = impairments_of(record);
  const bool again = (record.flags & kCaptureRetransmit) != 0;
  if (again) say(text, "retransmission");
  if ((record.impaired & kImpairedLost) != 0) return text;
  if (record.direction == CaptureDirection::kSent) {
    if (!again) say(text, "sent");
  } else {
    const std::string words = received(record, counters);
    say(text, words.empty() ? "taken" : words);
  }
  if (headers != nullptr)
    if (const std::string subject = subject_of(*headers); !subject.empty()) say(text, subject);
  return text;
}

std::string changes_in(const CaptureRecord& record, std::span<const std::string> counters) {
  std::string text;
  for (uint32_t i = 0; i < record.change_count; ++i)
    say(text, fmt::format("{} {}", name_of(record.changes[i], counters), record.changes[i].by));
  return text;
}

}  // namespace hostnic::cli
