// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/clients/regions.h"

#include <thread>
#include <utility>

namespace hostnic {

uint32_t Regions::add(MrTable::Init init) {
  std::lock_guard lock(mrs_mutex_);
  return mrs_.add(std::move(init));
}

void Regions::restore(uint32_t key) {
  std::lock_guard lock(mrs_mutex_);
  mrs_.restore(key);
}

std::vector<MappedPiece> Regions::replace(uint32_t& key, MrTable::Init init) {
  std::lock_guard lock(mrs_mutex_);
  return mrs_.replace(key, std::move(init));
}

void Regions::quiesce() {
  for (auto& lcore : lcores_) lcore->run_on([] {});
}

bool Regions::has_windows(uint32_t key, uint32_t client_id) {
  std::lock_guard lock(mrs_mutex_);
  return mrs_.has_windows(key, client_id);
}

bool Regions::invalidate(const std::vector<uint32_t>& keys, uint32_t client_id) {
  bool all = true;
  {
    std::lock_guard lock(mrs_mutex_);
    for (const uint32_t key : keys) all = mrs_.invalidate(key, client_id) && all;
  }
  quiesce();
  return all;
}

bool Regions::wait_unreferenced(const std::vector<uint32_t>& keys,
                                std::chrono::milliseconds limit) {
  using std::chrono::steady_clock;
  const auto end = steady_clock::now() + limit;
  for (const uint32_t key : keys) {
    // Packets that refer to the memory may lie in a ring, a few loop turns from being consumed.
    for (unsigned tries = 0;; ++tries) {
      {
        std::lock_guard lock(mrs_mutex_);
        if (!mrs_.referenced(key)) break;
      }
      if (steady_clock::now() >= end) return false;
      if (tries < 64)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  return true;
}

std::vector<MappedPiece> Regions::reclaim(uint32_t key) {
  std::lock_guard lock(mrs_mutex_);
  return mrs_.reclaim(key);
}

std::vector<uint32_t> Regions::keys_of(uint32_t client_id) {
  std::lock_guard lock(mrs_mutex_);
  return mrs_.keys_of(client_id);
}

std::vector<MrTable::RegionView> Regions::views() {
  std::lock_guard lock(mrs_mutex_);
  return mrs_.views();
}

uint64_t Regions::follow(LcoreLoop& lcore, uint32_t client_id, const MemoryChange& change,
                         MemFdHelper* helper) {
  // Nobody adds or removes this client's regions meanwhile, although the lock is given up: only its
  // session does, and it is what calls this.
  MrTable::PieceChange follows;
  {
    std::lock_guard lock(mrs_mutex_);
    follows = mrs_.follow(client_id, change);
  }
  follows.set_helper(helper);
  if (!follows.empty()) lcore.run_on([&] { follows.take_effect(); });
  return follows.bytes_left();
}

std::optional<std::vector<MappedPiece>> Regions::late_pieces(uint32_t key, uint32_t client_id) {
  std::lock_guard lock(mrs_mutex_);
  return mrs_.late_pieces(key, client_id);
}

void Regions::end_lateness(LcoreLoop& lcore, uint32_t key, uint32_t client_id) {
  MrTable::PieceChange change;  // as with follow()
  {
    std::lock_guard lock(mrs_mutex_);
    change = mrs_.end_lateness(key, client_id);
  }
  if (!change.empty()) lcore.run_on([&] { change.take_effect(); });
}

void Regions::retire(RetiredMemory memory) {
  std::lock_guard lock(retired_mutex_);
  retired_.push_back(std::move(memory));
}

size_t Regions::reap() {
  std::list<RetiredMemory> unreferenced;
  size_t left = 0;
  {
    std::lock_guard lock(retired_mutex_);
    for (auto it = retired_.begin(); it != retired_.end();) {
      const auto each = it++;
      if (wait_unreferenced(each->keys, std::chrono::milliseconds(0)))
        unreferenced.splice(unreferenced.end(), retired_, each);
    }
    left = retired_.size();
  }
  for (RetiredMemory& each : unreferenced)
    for (const uint32_t key : each.keys) each.memory->unmap(reclaim(key));
  return left;
}

}  // namespace hostnic
