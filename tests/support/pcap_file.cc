// SPDX-License-Identifier: BSD-3-Clause
#include "tests/support/pcap_file.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "protocol/wire/bytes.h"

namespace hostnic::pcap {
namespace {

// The file's header: magic 4, version 4, zone 4, accuracy 4, longest frame 4, link type 4. The
// frame's: time 8, captured bytes 4, bytes on the wire 4.
constexpr size_t kFileHeaderBytes = 24, kFrameHeaderBytes = 16;
constexpr size_t kLinkTypeOffset = 20, kCapturedOffset = 8, kLengthOffset = 12;
constexpr uint32_t kMagic = 0xa1b2c3d4, kLinkTypeEthernet = 1;

}  // namespace

std::vector<Frame> read_frames(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> text{std::istreambuf_iterator<char>(file), {}};
  const auto* const bytes = reinterpret_cast<const std::byte*>(text.data());
  if (text.size() < kFileHeaderBytes || wire::load_le32(bytes) != kMagic ||
      wire::load_le32(bytes + kLinkTypeOffset) != kLinkTypeEthernet)
    throw std::runtime_error(path + " is no capture of Ethernet frames");
  std::vector<Frame> frames;
  for (size_t at = kFileHeaderBytes; at != text.size();) {
    if (text.size() - at < kFrameHeaderBytes) throw std::runtime_error(path + " ends in a header");
    const uint32_t captured = wire::load_le32(bytes + at + kCapturedOffset);
    if (captured != wire::load_le32(bytes + at + kLengthOffset))
      throw std::runtime_error(path + " has a frame that was cut");
    at += kFrameHeaderBytes;
    if (text.size() - at < captured) throw std::runtime_error(path + " ends in a frame");
    frames.emplace_back(bytes + at, bytes + at + captured);
    at += captured;
  }
  return frames;
}

}  // namespace hostnic::pcap
