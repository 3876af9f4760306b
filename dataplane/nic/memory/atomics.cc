// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/memory/atomics.h"

#include <rte_pause.h>

#include <array>
#include <atomic>
#include <cstring>

#include "dataplane/nic/memory/region_access.h"

namespace hostnic {
namespace {

uint64_t result_of(const AtomicOperation& operation, uint64_t before) {
  if (!operation.compare_swap) return before + operation.swap_or_add;
  return before == operation.compare ? operation.swap_or_add : before;
}

// Words that are read and then written are locked by their address, and not by their region: one
// word may lie in several. The client is no part of the hash: a collision costs time only.
class WordLock {
 public:
  explicit WordLock(VirtualAddress word) : flag_(flags()[word / 8 % kStripes].flag) {
    // The lock's holder makes two system calls. An lcore that was put to sleep in between must not
    // delay the others: these drop the packet, and it comes again (rule 33, nobody waits for
    // another).
    for (uint32_t tries = 0; flag_.test_and_set(std::memory_order_acquire); ++tries) {
      if (tries == kPatience) return;
      rte_pause();
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
  static constexpr size_t kStripes = 64;
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

uint64_t execute_on_word(uint64_t* word, const AtomicOperation& operation) {
  if (!operation.compare_swap)
    return __atomic_fetch_add(word, operation.swap_or_add, __ATOMIC_SEQ_CST);
  uint64_t before = operation.compare;
  __atomic_compare_exchange_n(word, &before, operation.swap_or_add, false, __ATOMIC_SEQ_CST,
                              __ATOMIC_SEQ_CST);
  return before;
}

}  // namespace

AtomicResult execute_atomic_on(MemoryRegionEntry& region, uint64_t iova,
                               const AtomicOperation& operation, uint64_t& before) {
  std::byte* mapped = mapped_address(region, iova, 8);
  if (mapped != nullptr && reinterpret_cast<uintptr_t>(mapped) % 8 == 0) {
    // Mapped memory takes the CPU's own instruction, which is coherent with the program's.
    before = execute_on_word(reinterpret_cast<uint64_t*>(mapped), operation);
    return AtomicResult::kDone;
  }
  // A word that is reached through the mem fd is atomic among NICs only (IBV_ATOMIC_HCA).
  const VirtualAddress addr = iova + region.va_delta;
  const WordLock lock(addr);
  if (!lock.held()) return AtomicResult::kBusy;
  std::array<std::byte, 8> bytes;
  const MemFdPass pass(region);
  if (!pass.granted()) return AtomicResult::kBusy;
  const auto transfer = [&](bool write) {
    return for_each_piece(
        region, addr, bytes.size(), [&](const MappedPiece& piece, uint64_t offset, uint64_t part) {
          const VirtualAddress va = piece.va + offset;
          std::byte* mine = bytes.data() + (va - addr);
          if (piece.host == nullptr)
            return write ? write_through(region, piece, offset, {mine, part})
                         : read_through(region, piece, offset, {mine, part});
          std::memcpy(write ? piece.host + offset : mine, write ? mine : piece.host + offset, part);
          return true;
        });
  };
  if (!transfer(/*write=*/false)) return AtomicResult::kMemoryGone;
  std::memcpy(&before, bytes.data(), bytes.size());
  const uint64_t after = result_of(operation, before);
  std::memcpy(bytes.data(), &after, bytes.size());
  return transfer(/*write=*/true) ? AtomicResult::kDone : AtomicResult::kMemoryGone;
}

}  // namespace hostnic
