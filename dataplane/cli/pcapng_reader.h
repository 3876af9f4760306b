// SPDX-License-Identifier: BSD-3-Clause
// Reads pcapng files as `hostnic capture` writes them: one section in this machine's byte order, of
// Ethernet interfaces. Files come from anywhere: whatever does not agree is an error, and nothing
// is taken for a length that has not been compared with what is there. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "protocol/expected.h"
#include "protocol/types.h"

namespace hostnic::cli {

struct ReadInterface {
  std::string name, description;
};
struct ReadPacket {
  uint32_t interface = 0;
  TimeNs wall_ns = 0;
  uint32_t original_bytes = 0;
  std::span<const std::byte> bytes;  // until the next call
  bool sent = false;
  std::string_view comment;  // until the next call
};
struct ReadStatistics {
  uint32_t interface = 0;
  uint64_t received = 0, dropped = 0;
  std::string comment;
};
struct ReadEnd {};

class PcapngReader {
 public:
  static constexpr uint32_t kMaxBlockBytes = 1 << 20;
  static constexpr size_t kMaxInterfaces = 1024;

  using Item = std::variant<ReadInterface, ReadPacket, ReadStatistics, ReadEnd>;

  // Reads from `file`, which the caller keeps open.
  explicit PcapngReader(std::FILE* file) : file_(file) {}
  // The next thing in the file; blocks of kinds that are not known are passed over. An error is one
  // line. A file that ends within a block, as one does whose writer was killed, ends there.
  Expected<Item, std::string> next();
  // Whether the file ended within a block.
  bool cut() const { return cut_; }

 private:
  struct Options;
  bool read(void* to, size_t bytes);
  Expected<bool, std::string> read_block(uint32_t& type);
  Expected<Item, std::string> parse_interface();
  Expected<Item, std::string> parse_packet();
  Expected<Item, std::string> parse_statistics();

  std::FILE* file_;
  std::vector<std::byte> body_;
  size_t interfaces_ = 0;
  bool began_ = false, cut_ = false;
};

}  // namespace hostnic::cli
