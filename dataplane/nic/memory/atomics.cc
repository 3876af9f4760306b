// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/memory/atomics.h"

#include <array>
#include <cstring>
#include <optional>

#include "dataplane/memory/sigbus.h"
#include "dataplane/nic/memory/region_access.h"

namespace hostnic {
namespace {

uint64_t execute_on_word(uint64_t* word, const AtomicOperation& operation) {
  if (!operation.compare_swap)
    return __atomic_fetch_add(word, operation.swap_or_add, __ATOMIC_SEQ_CST);
  uint64_t before = operation.compare;
  __atomic_compare_exchange_n(word, &before, operation.swap_or_add, false, __ATOMIC_SEQ_CST,
                              __ATOMIC_SEQ_CST);
  return before;
}

AtomicResult atomic_result(MemoryAccess access) {
  return access == MemoryAccess::kDone     ? AtomicResult::kDone
         : access == MemoryAccess::kNotNow ? AtomicResult::kBusy
                                           : AtomicResult::kMemoryGone;
}

struct Word {
  const MappedPiece* piece = nullptr;  // which its first byte is in
  uint64_t offset = 0;                 // of that byte
  std::byte* address = nullptr;        // null: not mapped in one piece
  bool unfilled = false;               // part of it has not come into the mirror yet
};
Word find_word(const MemoryRegionEntry& region, uint64_t iova) {
  Word word;
  for_each_piece(region, iova + region.va_delta, 8,
                 [&](const MappedPiece& piece, uint64_t offset, uint64_t part) {
                   std::byte* address = address_now(piece, offset, part);
                   word.unfilled |= address == nullptr && piece.is_late();
                   if (part == 8) word.address = address;
                   if (word.piece == nullptr) {
                     word.piece = &piece;
                     word.offset = offset;
                   }
                   return true;
                 });
  return word;
}

// The word where a processor can reach it in one access; null: it can't.
uint64_t* mapped_word(const Word& word) {
  const bool is_aligned = reinterpret_cast<uintptr_t>(word.address) % 8 == 0;
  return is_aligned && !word.unfilled ? reinterpret_cast<uint64_t*>(word.address) : nullptr;
}

}  // namespace

AtomicResult load_atomic_on(const MemoryRegionEntry& region, uint64_t iova, uint64_t& before) {
  const uint64_t* const word = mapped_word(find_word(region, iova));
  if (word == nullptr) return AtomicResult::kBusy;
  before = __atomic_load_n(word, __ATOMIC_SEQ_CST);
  return copy_is_void(reinterpret_cast<const std::byte*>(word), sizeof(before))
             ? AtomicResult::kBusy
             : AtomicResult::kDone;
}

AtomicResult store_atomic_on(const MemoryRegionEntry& region, uint64_t iova,
                             const AtomicOperation& operation, uint64_t before) {
  uint64_t* const word = mapped_word(find_word(region, iova));
  if (word == nullptr) return AtomicResult::kBusy;
  const uint64_t after = result_of(operation, before);
  if (after != before) __atomic_store_n(word, after, __ATOMIC_SEQ_CST);
  return copy_is_void(reinterpret_cast<const std::byte*>(word), sizeof(before))
             ? AtomicResult::kBusy
             : AtomicResult::kDone;
}

AtomicResult execute_atomic_on(MemoryRegionEntry& region, uint64_t iova,
                               const AtomicOperation& operation, const TransferUser& user,
                               uint64_t& before) {
  const Word word = find_word(region, iova);
  if (word.unfilled) return AtomicResult::kBusy;
  if (uint64_t* const mapped = mapped_word(word)) {
    // Mapped memory takes the CPU's own instruction, which is coherent with the program's.
    std::optional<WordLock> lock;
    if (!word.piece->in_mirror && !lock.emplace(word.piece->va + word.offset).held())
      return AtomicResult::kBusy;
    before = execute_on_word(mapped, operation);
    return copy_is_void(word.address, sizeof(before)) ? AtomicResult::kBusy : AtomicResult::kDone;
  }
  // A word that is reached through the mem fd is atomic among NICs only (IBV_ATOMIC_HCA).
  const VirtualAddress addr = iova + region.va_delta;
  if (word.piece == nullptr) return AtomicResult::kMemoryGone;
  if (region.helper != nullptr) {
    if (word.piece->gone) return AtomicResult::kMemoryGone;
    const auto result = region.helper->change_word(
        helper_target(region, user, *word.piece, word.offset), operation, before);
    return atomic_result(access_of(region, word.piece->va + word.offset, sizeof(before), result));
  }
  const WordLock lock(addr);
  if (!lock.held()) return AtomicResult::kBusy;
  std::array<std::byte, 8> bytes;
  const MemFdPass pass(region);
  if (!pass.granted()) return AtomicResult::kBusy;
  MemoryAccess access = MemoryAccess::kDone;
  const auto transfer = [&](bool write) {
    for_each_piece(
        region, addr, bytes.size(), [&](const MappedPiece& piece, uint64_t offset, uint64_t part) {
          std::byte* mine = bytes.data() + (piece.va + offset - addr);
          if (piece.by_mem_fd()) {
            access = write ? write_through(region, piece, offset, {mine, part}, user)
                           : read_through(region, piece, offset, {mine, part}, user);
            return access == MemoryAccess::kDone;
          }
          std::byte* theirs = (piece.host != nullptr ? piece.host : piece.late_host) + offset;
          std::memcpy(write ? theirs : mine, write ? mine : theirs, part);
          return true;
        });
  };
  transfer(/*write=*/false);
  if (access != MemoryAccess::kDone) return atomic_result(access);
  if (has_faulted()) return AtomicResult::kBusy;
  std::memcpy(&before, bytes.data(), bytes.size());
  const uint64_t after = result_of(operation, before);
  std::memcpy(bytes.data(), &after, bytes.size());
  transfer(/*write=*/true);
  return atomic_result(access);
}

}  // namespace hostnic
