// SPDX-License-Identifier: BSD-3-Clause
// Atomics on memory that is reached through a mem fd: the word is read and then written, under a
// lock that all threads of hostnicd share. Atomic among NICs, and not with the CPU's. Shared memory
// may be reached in both ways, by several clients and at several addresses: NICs take the lock for
// all of it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "protocol/spin_pause.h"
#include "protocol/types.h"

namespace hostnic {

struct AtomicOperation {
  bool compare_swap = false;  // else fetch and add
  uint64_t swap_or_add = 0;
  uint64_t compare = 0;
};

inline uint64_t result_of(const AtomicOperation& operation, uint64_t before) {
  if (!operation.compare_swap) return before + operation.swap_or_add;
  return before == operation.compare ? operation.swap_or_add : before;
}

// Words are locked by their place in their page, which is the same one wherever the page is mapped:
// a word may lie in several regions, of several clients. A collision costs time only.
class WordLock {
 public:
  explicit WordLock(VirtualAddress word) : flag_(flags()[word / 8 % kStripes].flag) {
    // The lock's holder makes two system calls. A thread that was put to sleep in between must not
    // delay the others: an lcore drops the packet, and it comes again (rule 33, nobody waits for
    // another).
    for (uint32_t tries = 0; flag_.test_and_set(std::memory_order_acquire); ++tries) {
      if (tries == kPatience) return;
      spin_pause();
    }
    held_ = true;
  }
  ~WordLock() {
    if (held_) flag_.clear(std::memory_order_release);
  }
  WordLock(const WordLock&) = delete;
  WordLock& operator=(const WordLock&) = delete;
  bool held() const { return held_; }

 private:
  static constexpr size_t kStripes = 4096 / 8;
  static constexpr uint32_t kPatience = 2000;
  struct alignas(64) Stripe {
    std::atomic_flag flag;
  };
  static std::array<Stripe, kStripes>& flags() {
    static std::array<Stripe, kStripes> stripes;
    return stripes;
  }
  std::atomic_flag& flag_;
  bool held_ = false;
};

}  // namespace hostnic
