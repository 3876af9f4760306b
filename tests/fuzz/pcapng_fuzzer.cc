// SPDX-License-Identifier: BSD-3-Clause
// A file that `hostnic report` is given may hold anything: what is read of it is consistent, and
// reading ends with the end or with an error of one line.
#include <cstdint>
#include <cstdio>
#include <string>
#include <variant>
#include <vector>

#include "dataplane/cli/pcapng_reader.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hostnic::cli;
  using hostnic::fuzz::require;
  if (size == 0) return 0;
  std::FILE* const file = fmemopen(const_cast<uint8_t*>(data), size, "r");
  if (file == nullptr) return 0;
  PcapngReader reader(file);
  size_t interfaces = 0, items = 0;
  for (;;) {
    const auto item = reader.next();
    if (!item) {
      require(!item.error().empty() && item.error().find('\n') == std::string::npos);
      break;
    }
    if (std::holds_alternative<ReadEnd>(*item)) break;
    require(++items <= size / 12);  // no block is shorter
    if (std::holds_alternative<ReadInterface>(*item)) {
      require(++interfaces <= PcapngReader::kMaxInterfaces);
    } else if (const auto* packet = std::get_if<ReadPacket>(&*item)) {
      require(packet->interface < interfaces && packet->bytes.size() <= size &&
              packet->comment.size() <= size);
      // Every byte can be read.
      const std::vector<std::byte> bytes(packet->bytes.begin(), packet->bytes.end());
      const std::string comment(packet->comment);
      require(bytes.size() == packet->bytes.size() && comment == packet->comment);
    } else if (const auto* statistics = std::get_if<ReadStatistics>(&*item)) {
      require(statistics->interface < interfaces);
    }
  }
  std::fclose(file);
  return 0;
}
