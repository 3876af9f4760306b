// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/memory/mr_table.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "protocol/hostif/descriptors.h"

namespace hostnic {

MrTable::MrTable(uint32_t capacity, uint64_t seed)
    : capacity_(std::min(capacity, 1u << (kKeyBits - kLeastTagBits))),
      tag_bits_(kKeyBits - (capacity_ > 1 ? std::bit_width(capacity_ - 1) : 0u)),
      entries_(std::make_unique<MemoryRegionEntry[]>(capacity_)),
      random_(seed) {
  // The order is random, so that an index says nothing of others.
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < capacity_; ++i) order.push_back(i);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_.next() % i]);
  free_.assign(order.begin(), order.end());
}

void MrTable::fill(MemoryRegionEntry& entry, Init init) {
  entry.client_id = init.client_id;
  entry.pd = init.pd;
  entry.access = init.access;
  entry.iova = init.iova;
  entry.length_bytes = init.length_bytes;
  entry.va_delta = init.va - init.iova;
  entry.mem_fd = init.mem_fd;
  entry.client_gone = init.client_gone;
  entry.helper = init.helper;
  entry.pieces = std::move(init.pieces);
  entry.partly_gone = false;
  // Regions on demand need no gate: for them, what is mapped at the moment is what is meant.
  const bool fixed_by_mem_fd =
      (entry.access & kAccessOnDemand) == 0 &&
      std::ranges::any_of(entry.pieces, [](const MappedPiece& piece) { return piece.by_mem_fd(); });
  entry.gate = fixed_by_mem_fd ? init.gate : nullptr;
}

uint32_t MrTable::add(Init init) {
  if (free_.empty()) return 0;
  const uint32_t index = free_.front();
  free_.pop_front();
  // The tag is random, so that neither an older key of this index nor a neighbour's is guessed by
  // counting. It is never 0, so that no key is.
  uint32_t tag;
  do {
    tag = random_.next() & ((1u << tag_bits_) - 1);
  } while (tag == 0);
  MemoryRegionEntry& entry = entries_[index];
  fill(entry, std::move(init));
  entry.windows_bound.store(0, std::memory_order_relaxed);
  const uint32_t key = static_cast<uint32_t>(uint64_t{index} << tag_bits_) | tag;
  entry.pending_key = key;
  entry.key.store(key, std::memory_order_release);
  used_.fetch_add(1, std::memory_order_relaxed);
  return key;
}

bool MrTable::invalidate(uint32_t key, uint32_t client_id) {
  MemoryRegionEntry* entry = find(key);
  if (entry == nullptr || entry->client_id != client_id) return false;
  entry->key.store(0, std::memory_order_release);
  return true;
}

void MrTable::restore(uint32_t key) {
  if (MemoryRegionEntry* entry = pending(key)) entry->key.store(key, std::memory_order_release);
}

std::vector<MappedPiece> MrTable::replace(uint32_t key, Init init) {
  MemoryRegionEntry* entry = pending(key);
  if (entry == nullptr) return {};
  std::vector<MappedPiece> pieces = std::move(entry->pieces);
  fill(*entry, std::move(init));
  entry->key.store(key, std::memory_order_release);
  return pieces;
}

std::vector<MappedPiece> MrTable::reclaim(uint32_t key) {
  MemoryRegionEntry* entry = pending(key);
  if (entry == nullptr) return {};
  std::vector<MappedPiece> pieces = std::move(entry->pieces);
  entry->pieces.clear();
  entry->pending_key = 0;
  free_.push_back(key >> tag_bits_);
  used_.fetch_sub(1, std::memory_order_relaxed);
  return pieces;
}

namespace {

// Returns the pieces, with those parts marked as unmapped that lie in [va, va + length_bytes). The
// result is empty if that changes nothing.
std::vector<MappedPiece> without(std::span<const MappedPiece> pieces, VirtualAddress va,
                                 uint64_t length_bytes) {
  std::vector<MappedPiece> result;
  bool changes = false;
  for (const MappedPiece& piece : pieces) {
    const VirtualAddress piece_end = piece.va + piece.length_bytes;
    const VirtualAddress from = std::max(piece.va, va);
    const VirtualAddress to = std::min(piece_end, va + length_bytes);
    if (!piece.by_mem_fd() || piece.gone || from >= to) {
      result.push_back(piece);
      continue;
    }
    changes = true;
    const auto part = [&](VirtualAddress start, VirtualAddress end, bool gone) {
      if (start == end) return;
      MappedPiece some = piece;
      some.va = start;
      some.length_bytes = end - start;
      some.space_offset += start - piece.va;
      some.gone = gone;
      result.push_back(some);
    };
    part(piece.va, from, false);
    part(from, to, true);
    part(to, piece_end, false);
  }
  if (!changes) result.clear();
  return result;
}

}  // namespace

MrTable::PieceChange MrTable::revoke(uint32_t client_id, VirtualAddress va, uint64_t length_bytes) {
  PieceChange revocation;
  for (uint32_t i = 0; i < capacity_; ++i) {
    MemoryRegionEntry& entry = entries_[i];
    if (entry.key.load(std::memory_order_relaxed) == 0 || entry.client_id != client_id ||
        (entry.access & kAccessOnDemand) != 0)
      continue;
    auto pieces = without(entry.pieces, va, length_bytes);
    if (!pieces.empty()) revocation.changes_.push_back({&entry, std::move(pieces), true});
  }
  return revocation;
}

MrTable::PieceChange MrTable::end_lateness(uint32_t key, uint32_t client_id) {
  PieceChange change;
  MemoryRegionEntry* entry = find(key);
  if (entry == nullptr || entry->client_id != client_id) return change;
  std::vector<MappedPiece> pieces = entry->pieces;
  for (MappedPiece& piece : pieces) piece.host = piece.mapping();
  change.changes_.push_back({entry, std::move(pieces), entry->partly_gone});
  return change;
}

void MrTable::PieceChange::take_effect() {
  for (Change& change : changes_) {
    change.entry->pieces.swap(change.pieces);
    change.entry->partly_gone = change.partly_gone;
  }
}

std::optional<std::vector<MappedPiece>> MrTable::late_pieces(uint32_t key, uint32_t client_id) {
  const MemoryRegionEntry* entry = find(key);
  if (entry == nullptr || entry->client_id != client_id) return std::nullopt;
  std::vector<MappedPiece> late;
  std::ranges::copy_if(entry->pieces, std::back_inserter(late), &MappedPiece::is_late);
  return late;
}

bool MrTable::referenced(uint32_t key) const {
  const uint32_t index = key >> tag_bits_;
  return index < capacity_ && entries_[index].mbufs_out.load(std::memory_order_acquire) != 0;
}

std::vector<uint32_t> MrTable::keys_of(uint32_t client_id) const {
  std::vector<uint32_t> keys;
  for (uint32_t i = 0; i < capacity_; ++i) {
    const uint32_t key = entries_[i].key.load(std::memory_order_relaxed);
    if (key != 0 && entries_[i].client_id == client_id) keys.push_back(key);
  }
  return keys;
}

}  // namespace hostnic
