// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/memory/atomics.h"

#include <array>
#include <cstring>

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

struct Word {
  std::byte* address = nullptr;  // null: not mapped in one piece
  bool unfilled = false;         // part of it has not come into the mirror yet
};
Word find_word(const MemoryRegionEntry& region, uint64_t iova) {
  Word word;
  for_each_piece(region, iova + region.va_delta, 8,
                 [&](const MappedPiece& piece, uint64_t offset, uint64_t part) {
                   std::byte* address = address_now(piece, offset, part);
                   word.unfilled |= address == nullptr && piece.is_late();
                   if (part == 8) word.address = address;
                   return true;
                 });
  return word;
}

}  // namespace

AtomicResult execute_atomic_on(MemoryRegionEntry& region, uint64_t iova,
                               const AtomicOperation& operation, const TransferUser& user,
                               uint64_t& before) {
  const Word word = find_word(region, iova);
  if (word.unfilled) return AtomicResult::kBusy;
  if (word.address != nullptr && reinterpret_cast<uintptr_t>(word.address) % 8 == 0) {
    // Mapped memory takes the CPU's own instruction, which is coherent with the program's.
    before = execute_on_word(reinterpret_cast<uint64_t*>(word.address), operation);
    return AtomicResult::kDone;
  }
  // A word that is reached through the mem fd is atomic among NICs only (IBV_ATOMIC_HCA).
  const VirtualAddress addr = iova + region.va_delta;
  if (region.helper != nullptr) {
    const auto result =
        region.helper->change_word(helper_target(region, user, addr), operation, before);
    if (!result) return AtomicResult::kBusy;
    return good_transfer(region, *result) ? AtomicResult::kDone : AtomicResult::kMemoryGone;
  }
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
          if (piece.by_mem_fd())
            return (write ? write_through(region, piece, offset, {mine, part}, user)
                          : read_through(region, piece, offset, {mine, part}, user)) ==
                   MemoryAccess::kDone;
          std::byte* theirs = piece.mapping() + offset;
          std::memcpy(write ? theirs : mine, write ? mine : theirs, part);
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
