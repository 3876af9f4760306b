// SPDX-License-Identifier: BSD-3-Clause
// What a device hears of changes of mappings, and tests of that.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/memory/testing.h"
#include "verbs-shim/memory/raw_memory.h"

namespace hostnic::memory_testing {

inline void* map_fixed(uint64_t va, size_t length) {
  return memory::raw_mmap(reinterpret_cast<void*>(va), length, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

inline constexpr size_t kMostTold = 16 * 1024;

// A device whose NIC is one thread.
class Device final : public memory::RegionUser {
 public:
  // Has room for what is told from the start: the revoker's thread must map nothing.
  Device() {
    revoked_.reserve(kMostTold);
    changes_.reserve(kMostTold);
    opened_at_.reserve(kMostTold);
    memory::MemoryRegistrar::process().attach(*this);
  }
  ~Device() { memory::MemoryRegistrar::process().detach(*this); }

  MemoryGate& memory_gate() override { return gate_; }
  void memory_gate_opened() override {
    const std::lock_guard lock(mutex_);
    // Room that is made here would be unmapped by who must not wait for the watch.
    if (opened_at_.size() < kMostTold) opened_at_.push_back(changes_.size());
  }
  uint64_t nic_turn_ns() override { return UINT64_MAX; }
  void follow_memory(const MemoryChange& change) override {
    if (is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const std::lock_guard lock(mutex_);
    if (change.kind == MemoryChangeKind::kGone)
      revoked_.push_back({change.va, change.va + change.length_bytes});
    changes_.push_back(change);
  }
  // Where a byte is that was registered at `va`, as far as was told; 0: gone. `left_mirror` says
  // whether it is said to have left the mirror.
  uint64_t place_of(uint64_t va, bool* left_mirror = nullptr) {
    const std::lock_guard lock(mutex_);
    for (const MemoryChange& change : changes_) {
      if (va == 0 || va - change.va >= change.length_bytes) continue;
      if (change.kind == MemoryChangeKind::kGone) va = 0;
      if (change.kind == MemoryChangeKind::kMoved) va += change.moved_to - change.va;
      if (change.kind == MemoryChangeKind::kOutside && left_mirror != nullptr) *left_mirror = true;
    }
    return va;
  }
  // Whether transfers could be made when pages that were registered at `va` had left the mirror,
  // and where they have moved had not been told.
  bool opened_too_early(uint64_t va) {
    const std::lock_guard lock(mutex_);
    const auto first = [&](MemoryChangeKind kind) {
      return static_cast<size_t>(std::ranges::find_if(changes_,
                                                      [=](const MemoryChange& change) {
                                                        return change.kind == kind &&
                                                               va - change.va < change.length_bytes;
                                                      }) -
                                 changes_.begin());
    };
    const size_t left = first(MemoryChangeKind::kOutside), moved = first(MemoryChangeKind::kMoved);
    return std::ranges::any_of(opened_at_, [=](size_t at) { return left < at && at <= moved; });
  }
  // Whether pages that were registered at `va` were ever said to have left the mirror.
  bool left_mirror(uint64_t va) {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(changes_, [va](const MemoryChange& change) {
      return change.kind == MemoryChangeKind::kOutside && va - change.va < change.length_bytes;
    });
  }
  bool revoked(uint64_t va) {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(
        revoked_, [va](const auto& range) { return va >= range.first && va < range.second; });
  }
  // The revocations in [va, va + length_bytes): other memory of the process comes and goes, too.
  size_t revocations(uint64_t va, uint64_t length_bytes) {
    const std::lock_guard lock(mutex_);
    return static_cast<size_t>(std::ranges::count_if(revoked_, [=](const auto& range) {
      return range.first < va + length_bytes && va < range.second;
    }));
  }
  // What was revoked so far was about memory that was there before.
  void forget_revocations() {
    const std::lock_guard lock(mutex_);
    revoked_.clear();
    changes_.clear();
    opened_at_.clear();
  }
  std::atomic<bool> is_slow{false};  // it follows changes late, as a hostnicd that has to wait
  // What an lcore does with a packet. False: not now, or the memory is gone.
  bool write(uint64_t va, std::byte value) {
    bool done = false;
    if (gate_.enter(MemoryGate::kLcore) && !revoked(va))
      done = write_client(memory::MemoryRegistrar::process().mem_fd(), va, {&value, 1}) ==
             MemFdResult::kOk;
    gate_.leave();
    return done;
  }

 private:
  MemoryGate gate_{};
  std::mutex mutex_;
  std::vector<std::pair<uint64_t, uint64_t>> revoked_;
  std::vector<MemoryChange> changes_;
  std::vector<size_t> opened_at_;  // how many changes had been told when a gate was opened
};

// The first page of a region that begins in its midst is reached by the mem fd.
inline constexpr uint64_t kSkew = 100;

class MemoryWatch : public MemoryTest {
 protected:
  // Addresses of earlier tests' memory are given out again, and its revocations may be told late:
  // they are not this test's.
  void SetUp() override {
    wait_for_revoker();
    device.forget_revocations();
  }
  // Registrations wait for what is to be revoked.
  void wait_for_revoker() {
    Buffer other(kPage);
    Nic::Mr mr;
    ASSERT_TRUE(nic.add(other.va(), 64, mr)) << nic.error;
    nic.remove(mr);
  }
  bool watches() {
    wait_for_revoker();
    return registrar().status().find("interposition only") == std::string::npos;
  }
  void needs_watch() {
    if (!watches()) GTEST_SKIP() << registrar().status();
  }
  Device device;
};

}  // namespace hostnic::memory_testing
