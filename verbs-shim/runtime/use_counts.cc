// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/runtime/use_counts.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "protocol/hostif/unique_fd.h"

namespace hostnic::runtime {
namespace {

// Null: there is none that can be used.
UseBoard* map_board() {
  const char* path = getenv(kUseBoardVariable);
  if (path == nullptr || *path == '\0') return nullptr;
  const UniqueFd file(open(path, O_RDWR | O_CLOEXEC));
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0 ||
      status.st_size < static_cast<off_t>(sizeof(UseBoard)))
    return nullptr;
  void* mapped = mmap(nullptr, sizeof(UseBoard), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* board = static_cast<UseBoard*>(mapped);
  return board->magic == kUseMagic && board->version == kUseVersion ? board : nullptr;
}

}  // namespace

TrafficCounts* claim_use_counts() {
  static UseBoard* const board = map_board();
  if (board == nullptr) return nullptr;
  const uint32_t place = board->devices.fetch_add(1, std::memory_order_relaxed);
  return place < kUseDevices ? &board->device[place] : nullptr;
}

}  // namespace hostnic::runtime
