// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/rdma_use.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>

#include "dataplane/cli/process.h"
#include "dataplane/cli/quantities.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic::cli {
namespace {

uint64_t read(const uint64_t& count) { return __atomic_load_n(&count, __ATOMIC_RELAXED); }

std::string with_commas(uint64_t number) {
  std::string text = std::to_string(number);
  for (size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, ",");
  return text;
}

std::string bytes_text(uint64_t bytes) {
  constexpr const char* kUnits[] = {"KB", "MB", "GB", "TB", "PB"};
  if (bytes < 1000) return fmt::format("{} bytes", bytes);
  auto value = static_cast<double>(bytes) / 1000;
  size_t unit = 0;
  while (value >= 999.95 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

void add_use(UseBoard& board, const RdmaUse& use) {
  const uint32_t place = board.devices.fetch_add(1, std::memory_order_relaxed);
  if (place >= kUseDevices) return;
  TrafficCounts& device = board.device[place];
  device.request_messages = use.request_messages;
  device.request_bytes = use.request_bytes;
  device.receive_messages = use.receive_messages;
  device.receive_bytes = use.receive_bytes;
  device.queue_pairs = use.queue_pairs;
}

std::string counted(uint64_t number, const char* what) {
  return fmt::format("{} {}{}", with_commas(number), what, number == 1 ? "" : "s");
}

}  // namespace

RdmaUse use_of(const UseBoard& board) {
  RdmaUse use;
  use.devices = board.devices.load(std::memory_order_relaxed);
  use.is_complete = use.devices <= kUseDevices;
  for (uint32_t i = 0; i < std::min(use.devices, kUseDevices); ++i) {
    const TrafficCounts& device = board.device[i];
    use.request_messages += read(device.request_messages);
    use.request_bytes += read(device.request_bytes);
    use.receive_messages += read(device.receive_messages);
    use.receive_bytes += read(device.receive_bytes);
    use.queue_pairs += read(device.queue_pairs);
  }
  return use;
}

void add_use_to(const char* path, const RdmaUse& use) {
  const UniqueFd file(open(path, O_RDWR | O_CLOEXEC));
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0 ||
      status.st_size != static_cast<off_t>(sizeof(UseBoard)))
    return;
  void* mapped = mmap(nullptr, sizeof(UseBoard), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) return;
  add_use(*static_cast<UseBoard*>(mapped), use);
  munmap(mapped, sizeof(UseBoard));
}

std::string text_of(const RdmaUse& use) {
  std::string text =
      fmt::format("{} in {} by {}", bytes_text(use.bytes()), counted(use.messages(), "message"),
                  counted(use.queue_pairs, "queue pair"));
  if (!use.is_complete) text += fmt::format(", and more: {} devices were opened", use.devices);
  return text;
}

int judge_use(const std::string& subcommand, const std::string& required, const RdmaUse& use,
              int code) {
  const auto bytes = parse_bytes(required);
  if (required.empty() || !bytes || use.bytes() >= *bytes) return code;
  fail(subcommand,
       use.devices == 0
           ? fmt::format("--require-rdma {}: no program has opened one of hostnic's devices",
                         required)
           : fmt::format("--require-rdma {}: only {}", required, text_of(use)));
  return code == 0 ? kTooLittleUse : code;
}

}  // namespace hostnic::cli
