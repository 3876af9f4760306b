// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/pcapng.h"

#include <algorithm>
#include <cstring>

namespace hostnic::cli {
namespace {

constexpr uint32_t kSectionHeader = 0x0a0d0d0a, kInterface = 1, kStatistics = 5, kPacket = 6;
constexpr uint32_t kByteOrderMagic = 0x1a2b3c4d;
constexpr uint16_t kEthernet = 1;
constexpr uint16_t kEndOfOptions = 0, kComment = 1;
constexpr uint16_t kSectionProgram = 4;
constexpr uint16_t kInterfaceName = 2, kInterfaceDescription = 3, kInterfaceResolution = 9;
constexpr uint16_t kPacketFlags = 2;
constexpr uint16_t kStatisticsStart = 2, kStatisticsEnd = 3, kStatisticsReceived = 4,
                   kStatisticsDropped = 5;
constexpr uint32_t kInbound = 1, kOutbound = 2;
constexpr char kNanoseconds = 9;
constexpr size_t kMostOptionBytes = 65'535;

}  // namespace

void PcapngWriter::word16(uint16_t value) {
  out_.append(reinterpret_cast<const char*>(&value), sizeof(value));
}
void PcapngWriter::word32(uint32_t value) {
  out_.append(reinterpret_cast<const char*>(&value), sizeof(value));
}
void PcapngWriter::time(TimeNs wall_ns) {
  word32(static_cast<uint32_t>(wall_ns >> 32));
  word32(static_cast<uint32_t>(wall_ns));
}
void PcapngWriter::pad() { out_.append((4 - out_.size() % 4) % 4, '\0'); }

void PcapngWriter::option(uint16_t code, std::string_view value) {
  value = value.substr(0, kMostOptionBytes);
  word16(code);
  word16(static_cast<uint16_t>(value.size()));
  out_.append(value);
  pad();
}
void PcapngWriter::option32(uint16_t code, uint32_t value) {
  option(code, {reinterpret_cast<const char*>(&value), sizeof(value)});
}
void PcapngWriter::option64(uint16_t code, uint64_t value) {
  option(code, {reinterpret_cast<const char*>(&value), sizeof(value)});
}
void PcapngWriter::option_time(uint16_t code, TimeNs wall_ns) {
  const uint32_t words[] = {static_cast<uint32_t>(wall_ns >> 32), static_cast<uint32_t>(wall_ns)};
  option(code, {reinterpret_cast<const char*>(words), sizeof(words)});
}

// Returns where the block begins, for end_block(). Blocks are of whole words, so that what pad()
// counts from the buffer's beginning is right within a block, too.
size_t PcapngWriter::begin_block(uint32_t type) {
  const size_t at = out_.size();
  word32(type);
  word32(0);
  return at;
}

void PcapngWriter::end_block(size_t at) {
  const auto bytes = static_cast<uint32_t>(out_.size() - at + sizeof(uint32_t));
  std::memcpy(out_.data() + at + sizeof(uint32_t), &bytes, sizeof(bytes));
  word32(bytes);
}

void PcapngWriter::begin(std::string_view program) {
  const size_t block = begin_block(kSectionHeader);
  word32(kByteOrderMagic);
  word16(1);  // version 1.0
  word16(0);
  word32(UINT32_MAX);  // the section's length is not said
  word32(UINT32_MAX);
  option(kSectionProgram, program);
  option(kEndOfOptions, {});
  end_block(block);
}

void PcapngWriter::add_interface(const PcapngInterface& interface) {
  const size_t block = begin_block(kInterface);
  word16(kEthernet);
  word16(0);
  word32(interface.snap_bytes);
  option(kInterfaceName, interface.name);
  if (!interface.description.empty()) option(kInterfaceDescription, interface.description);
  option(kInterfaceResolution, {&kNanoseconds, 1});
  option(kEndOfOptions, {});
  end_block(block);
}

void PcapngWriter::add_packet(const PcapngPacket& packet) {
  const size_t block = begin_block(kPacket);
  word32(packet.interface);
  time(packet.wall_ns);
  word32(static_cast<uint32_t>(packet.bytes.size()));
  word32(packet.original_bytes);
  out_.append(reinterpret_cast<const char*>(packet.bytes.data()), packet.bytes.size());
  pad();
  if (!packet.comment.empty()) option(kComment, packet.comment);
  option32(kPacketFlags, packet.sent ? kOutbound : kInbound);
  option(kEndOfOptions, {});
  end_block(block);
}

void PcapngWriter::add_statistics(const PcapngStatistics& statistics) {
  const size_t block = begin_block(kStatistics);
  word32(statistics.interface);
  time(statistics.wall_end_ns);
  if (!statistics.comment.empty()) option(kComment, statistics.comment);
  option_time(kStatisticsStart, statistics.wall_start_ns);
  option_time(kStatisticsEnd, statistics.wall_end_ns);
  option64(kStatisticsReceived, statistics.received);
  option64(kStatisticsDropped, statistics.dropped);
  option(kEndOfOptions, {});
  end_block(block);
}

}  // namespace hostnic::cli
