// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/pcapng_reader.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>

namespace hostnic::cli {
namespace {

constexpr uint32_t kSectionHeader = 0x0a0d0d0a, kInterface = 1, kStatistics = 5, kPacket = 6;
constexpr uint32_t kByteOrderMagic = 0x1a2b3c4d;
constexpr uint16_t kEthernet = 1;
constexpr uint16_t kEndOfOptions = 0, kComment = 1;
constexpr uint16_t kInterfaceName = 2, kInterfaceDescription = 3, kInterfaceResolution = 9;
constexpr uint16_t kPacketFlags = 2;
constexpr uint16_t kStatisticsReceived = 4, kStatisticsDropped = 5;
constexpr uint32_t kDirection = 3, kOutbound = 2;
constexpr uint8_t kNanoseconds = 9;
constexpr size_t kHeaderBytes = 8, kTrailerBytes = 4;
constexpr size_t kInterfaceBytes = 8, kPacketBytes = 20, kStatisticsBytes = 12;

size_t padded(size_t bytes) { return (bytes + 3) / 4 * 4; }

template <typename T>
T load(std::span<const std::byte> bytes, size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

Unexpected<std::string> bad(std::string_view what) {
  return Unexpected(fmt::format("no pcapng file that can be read: {}", what));
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

// The options behind a block's fixed part.
struct PcapngReader::Options {
  std::span<const std::byte> rest;
  uint16_t code = 0;
  std::span<const std::byte> value;

  // Goes to the next one; false: there is none. What is cut off ends the list.
  bool next() {
    if (rest.size() < 4) return false;
    code = load<uint16_t>(rest, 0);
    const size_t length = load<uint16_t>(rest, 2);
    if (code == kEndOfOptions || padded(length) > rest.size() - 4) return false;
    value = rest.subspan(4, length);
    rest = rest.subspan(4 + padded(length));
    return true;
  }
  uint64_t number() const {
    uint64_t number = 0;
    std::memcpy(&number, value.data(), std::min(value.size(), sizeof(number)));
    return number;
  }
};

bool PcapngReader::read(void* to, size_t bytes) { return std::fread(to, 1, bytes, file_) == bytes; }

// Reads a block's body. False: the file has ended.
Expected<bool, std::string> PcapngReader::read_block(uint32_t& type) {
  uint32_t header[2];
  const size_t got = std::fread(header, 1, sizeof(header), file_);
  if (got != sizeof(header)) {
    cut_ = got != 0;
    return false;
  }
  type = header[0];
  const uint32_t bytes = header[1];
  if (!began_ && type != kSectionHeader) return bad("it does not begin with a section");
  if (bytes % 4 != 0 || bytes < kHeaderBytes + kTrailerBytes || bytes > kMaxBlockBytes)
    return bad(fmt::format("a block has {} bytes (another machine's byte order?)", bytes));
  body_.resize(bytes - kHeaderBytes);
  if (!read(body_.data(), body_.size())) {
    cut_ = true;
    return false;
  }
  if (load<uint32_t>(body_, body_.size() - kTrailerBytes) != bytes)
    return bad("the two lengths of a block differ");
  body_.resize(body_.size() - kTrailerBytes);
  return true;
}

Expected<PcapngReader::Item, std::string> PcapngReader::next() {
  for (;;) {
    uint32_t type = 0;
    const auto is_there = read_block(type);
    if (!is_there) return Unexpected(is_there.error());
    if (!*is_there) {
      if (!began_) return bad("it is empty");
      return Item(ReadEnd{});
    }
    if (type == kSectionHeader) {
      if (began_) return bad("it has more than one section");
      if (body_.size() < 8 || load<uint32_t>(body_, 0) != kByteOrderMagic)
        return bad("it is of another byte order");
      began_ = true;
    } else if (type == kInterface) {
      return parse_interface();
    } else if (type == kPacket) {
      return parse_packet();
    } else if (type == kStatistics) {
      return parse_statistics();
    }
  }
}

Expected<PcapngReader::Item, std::string> PcapngReader::parse_interface() {
  if (body_.size() < kInterfaceBytes) return bad("a short interface block");
  if (load<uint16_t>(body_, 0) != kEthernet) return bad("an interface that is no Ethernet");
  if (++interfaces_ > kMaxInterfaces) return bad("too many interfaces");
  ReadInterface interface;
  bool nanoseconds = false;
  for (Options option{std::span(body_).subspan(kInterfaceBytes), 0, {}}; option.next();) {
    if (option.code == kInterfaceName) interface.name = text_of(option.value);
    if (option.code == kInterfaceDescription) interface.description = text_of(option.value);
    if (option.code == kInterfaceResolution) nanoseconds = option.number() == kNanoseconds;
  }
  if (!nanoseconds) return bad("times that are no nanoseconds");
  return Item(std::move(interface));
}

Expected<PcapngReader::Item, std::string> PcapngReader::parse_packet() {
  if (body_.size() < kPacketBytes) return bad("a short packet block");
  ReadPacket packet;
  packet.interface = load<uint32_t>(body_, 0);
  packet.wall_ns = uint64_t{load<uint32_t>(body_, 4)} << 32 | load<uint32_t>(body_, 8);
  const size_t captured = load<uint32_t>(body_, 12);
  packet.original_bytes = load<uint32_t>(body_, 16);
  if (packet.interface >= interfaces_) return bad("a packet of no interface");
  if (captured > packet.original_bytes || captured > body_.size() ||
      padded(captured) > body_.size() - kPacketBytes)
    return bad("a packet longer than its block");
  packet.bytes = std::span(body_).subspan(kPacketBytes, captured);
  for (Options option{std::span(body_).subspan(kPacketBytes + padded(captured)), 0, {}};
       option.next();) {
    if (option.code == kComment) packet.comment = text_of(option.value);
    if (option.code == kPacketFlags) packet.sent = (option.number() & kDirection) == kOutbound;
  }
  return Item(packet);
}

Expected<PcapngReader::Item, std::string> PcapngReader::parse_statistics() {
  if (body_.size() < kStatisticsBytes) return bad("a short statistics block");
  ReadStatistics statistics;
  statistics.interface = load<uint32_t>(body_, 0);
  if (statistics.interface >= interfaces_) return bad("statistics of no interface");
  for (Options option{std::span(body_).subspan(kStatisticsBytes), 0, {}}; option.next();) {
    if (option.code == kComment) statistics.comment = text_of(option.value);
    if (option.code == kStatisticsReceived) statistics.received = option.number();
    if (option.code == kStatisticsDropped) statistics.dropped = option.number();
  }
  return Item(std::move(statistics));
}

}  // namespace hostnic::cli
