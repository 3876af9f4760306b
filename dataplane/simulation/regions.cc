// SPDX-License-Identifier: BSD-3-Clause
// The registered memory of simulated programs.
#include <algorithm>

#include "dataplane/simulation/world.h"

namespace hostnic::sim {
namespace {

constexpr uint64_t kPageBytes = 4096;

}  // namespace

uint32_t Host::add_mr(const Memory& memory, uint32_t access, Reach reach, uint32_t pd,
                      uint64_t iova) {
  MrTable::Init init;
  init.client_id = index_ + 1;
  init.pd = pd;
  init.access = access;
  init.va = memory.address();
  init.iova = iova != 0 ? iova : init.va;
  init.sole_addresses = iova == init.va;
  init.length_bytes = memory.size();
  init.mem_fd = world_.mem_fd();
  init.gate = &channel_->header().memory_gate;
  init.turn_ns = nic_->turn_ns();
  // Mixed: pieces of one, two, three, one, ... pages, mapped and not in turn. Late: each such piece
  // is a slice.
  const bool in_parts = reach == Reach::kMixed || reach == Reach::kLate;
  LateRegion late;
  late.slices.resize(memory.size() / kPageBytes + 1, static_cast<uint8_t>(SliceState::kAside));
  uint64_t at = 0;
  uint32_t i = 0;
  for (; at < memory.size(); ++i) {
    const uint64_t wanted = in_parts ? (1 + i % 3) * kPageBytes : memory.size();
    const uint64_t length = std::min(wanted, memory.size() - at);
    const bool mapped = reach == Reach::kMapped || (reach == Reach::kMixed && i % 4 != 1);
    auto* host = reinterpret_cast<std::byte*>(memory.data() + at);
    init.pieces.push_back({.va = memory.address(at),
                           .length_bytes = length,
                           .host = mapped ? host : nullptr,
                           .space_id = index_ + 1,
                           .space_offset = memory.address(at),
                           .late_host = reach == Reach::kLate ? host : nullptr,
                           .slices = reach == Reach::kLate ? &late.slices[i] : nullptr});
    at += length;
  }
  late.slices.resize(i);
  const uint32_t key = world_.mrs().add(std::move(init));
  require(key != 0, "MR table full");
  late.key = key;
  if (reach == Reach::kLate) late_.push_back(std::move(late));
  return key;
}

void Host::remove_mr(uint32_t key) {
  world_.mrs().invalidate(key, index_ + 1);
  world_.retire(key);
}

void Host::revoke(uint64_t va, uint64_t length_bytes) {
  world_.mrs()
      .follow(index_ + 1, {.va = va, .length_bytes = length_bytes, .kind = MemoryChangeKind::kGone})
      .take_effect();
}

bool Host::fill_slices() {
  constexpr auto kFilled = static_cast<uint8_t>(SliceState::kFilled);
  bool any_wanted = false;
  for (auto region = late_.begin(); region != late_.end();) {
    size_t unfilled = 0;
    for (uint8_t& slice : region->slices) {
      if (slice == kFilled) continue;
      const bool wanted = slice == static_cast<uint8_t>(SliceState::kWanted);
      if (fill_order_.percent(wanted ? 30 : 1)) {
        slice = kFilled;
        continue;
      }
      ++unfilled;
      any_wanted |= wanted;
    }
    const auto each = region++;
    if (unfilled == 0) end_lateness(*each);
    if (unfilled == 0) filled_.splice(filled_.end(), late_, each);
  }
  return any_wanted;
}

void Host::fill_all_slices() {
  for (LateRegion& region : late_) {
    std::ranges::fill(region.slices, static_cast<uint8_t>(SliceState::kFilled));
    end_lateness(region);
  }
  filled_.splice(filled_.end(), late_);
}

// The region may be gone.
void Host::end_lateness(LateRegion& region) {
  world_.mrs().end_lateness(region.key, index_ + 1).take_effect();
}

}  // namespace hostnic::sim
