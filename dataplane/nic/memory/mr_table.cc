// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/memory/mr_table.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "dataplane/memory/mem_fd_helper.h"
#include "dataplane/memory/sigbus.h"
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
  entry.turn_ns = init.turn_ns;
  entry.pieces = std::move(init.pieces);
  entry.partly_gone = false;
  entry.fault_since_ns = 0;
  entry.client_gate = init.gate;
  set_gate(entry);
}

// Regions on demand need no gate: for them, what is mapped at the moment is what is meant.
void MrTable::set_gate(MemoryRegionEntry& entry) {
  const bool fixed_by_mem_fd =
      (entry.access & kAccessOnDemand) == 0 &&
      std::ranges::any_of(entry.pieces, [](const MappedPiece& piece) { return piece.by_mem_fd(); });
  entry.gate = fixed_by_mem_fd ? entry.client_gate : nullptr;
}

const std::set<uint32_t>& MrTable::indices_of(uint32_t client_id) const {
  static const std::set<uint32_t> kNone;
  const auto found = of_clients_.find(client_id);
  return found == of_clients_.end() ? kNone : found->second;
}

uint32_t MrTable::add(Init init) {
  if (free_.empty()) return 0;
  const uint32_t index = free_.front();
  free_.pop_front();
  // The tag is random, so that neither an older key of this index nor a neighbour's is guessed by
  // counting. It is never 0, so that no key is.
  uint32_t tag;
  do {
    tag = random_.next() & ((1u << tag_bits_) - 1) & ~kSoleAddressBit;
  } while (tag == 0);
  if (init.sole_addresses) tag |= kSoleAddressBit;
  MemoryRegionEntry& entry = entries_[index];
  fill(entry, std::move(init));
  entry.windows_bound.store(0, std::memory_order_relaxed);
  const uint32_t key = static_cast<uint32_t>(uint64_t{index} << tag_bits_) | tag;
  entry.pending_key = key;
  of_clients_[entry.client_id].insert(index);
  entry.key.store(key, std::memory_order_release);
  used_.fetch_add(1, std::memory_order_relaxed);
  return key;
}

bool MrTable::invalidate(uint32_t key, uint32_t client_id) {
  MemoryRegionEntry* entry = pending(key);
  if (entry == nullptr || entry->client_id != client_id) return false;
  if (entry->key.exchange(0, std::memory_order_acq_rel) == key) return true;
  return entry->cut_off.load(std::memory_order_acquire);
}

void MrTable::restore(uint32_t key) {
  MemoryRegionEntry* entry = pending(key);
  if (entry == nullptr || entry->cut_off.load(std::memory_order_acquire)) return;
  entry->key.store(key, std::memory_order_release);
}

uint32_t MrTable::cut_off(uint32_t client_id) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < capacity_; ++i) {
    MemoryRegionEntry& entry = entries_[i];
    uint32_t key = entry.key.load(std::memory_order_acquire);
    if (key == 0 || entry.client_id != client_id) continue;
    if (!any_replaced(entry.pieces)) continue;
    entry.cut_off.store(true, std::memory_order_release);
    if (entry.key.compare_exchange_strong(key, 0, std::memory_order_acq_rel)) ++count;
  }
  return count;
}

std::vector<MappedPiece> MrTable::replace(uint32_t& key, Init init) {
  MemoryRegionEntry* entry = pending(key);
  if (entry == nullptr) return {};
  if (!init.sole_addresses) key &= ~kSoleAddressBit;
  entry->pending_key = key;
  std::vector<MappedPiece> pieces = std::move(entry->pieces);
  entry->cut_off.store(false, std::memory_order_relaxed);
  fill(*entry, std::move(init));
  entry->key.store(key, std::memory_order_release);
  return pieces;
}

std::vector<MappedPiece> MrTable::reclaim(uint32_t key) {
  MemoryRegionEntry* entry = pending(key);
  if (entry == nullptr) return {};
  std::vector<MappedPiece> pieces = std::move(entry->pieces);
  entry->pieces.clear();
  entry->cut_off.store(false, std::memory_order_relaxed);
  entry->pending_key = 0;
  const auto owner = of_clients_.find(entry->client_id);
  owner->second.erase(key >> tag_bits_);
  if (owner->second.empty()) of_clients_.erase(owner);
  free_.push_back(key >> tag_bits_);
  used_.fetch_sub(1, std::memory_order_relaxed);
  return pieces;
}

namespace {

bool concerns(const MemoryChange& change, const MappedPiece& piece) {
  if (piece.gone) return false;
  const bool outside = change.kind == MemoryChangeKind::kOutside;
  return outside ? piece.in_mirror && !piece.by_mem_fd() : piece.by_mem_fd();
}

void apply(const MemoryChange& change, MappedPiece& piece) {
  switch (change.kind) {
    case MemoryChangeKind::kGone:
      piece.gone = true;
      break;
    case MemoryChangeKind::kMoved: {
      const uint64_t by = change.moved_to - change.va;
      piece.moved_by += by;
      piece.space_offset += by;
      break;
    }
    case MemoryChangeKind::kOutside:
      piece.left_host = piece.mapping();
      piece.host = piece.late_host = nullptr;
      break;
  }
}

// The part [from, to) of a piece, as offsets in it. The first part keeps what the piece has mapped.
MappedPiece part_of(const MappedPiece& piece, uint64_t from, uint64_t to) {
  MappedPiece part = piece;
  part.va += from;
  part.length_bytes = to - from;
  part.space_offset += from;
  for (std::byte** host : {&part.host, &part.late_host, &part.left_host})
    if (*host != nullptr) *host += from;
  if (piece.slices != nullptr) {
    part.slice_lead_bytes += from;
    part.slices += part.slice_lead_bytes / kSliceBytes;
    part.slice_lead_bytes %= kSliceBytes;
  }
  part.is_rest = piece.is_rest || from != 0;
  return part;
}

// A region's pieces are so many at most: a client could have it cut into as many as it has bytes.
constexpr size_t kMostPieces = 16'384;

// Whether a piece goes on where another ends, in all that counts. What gives a mapping back stays.
bool goes_on(const MappedPiece& piece, const MappedPiece& next) {
  const bool alike = piece.by_mem_fd() && next.by_mem_fd() && piece.gone == next.gone &&
                     piece.space_id == next.space_id && (next.left_host == nullptr || next.is_rest);
  return alike && (piece.gone || (piece.moved_by == next.moved_by &&
                                  piece.space_offset + piece.length_bytes == next.space_offset));
}

void join(std::vector<MappedPiece>& pieces) {
  size_t last = 0;
  for (size_t i = 1; i < pieces.size(); ++i) {
    if (goes_on(pieces[last], pieces[i]))
      pieces[last].length_bytes += pieces[i].length_bytes;
    else
      pieces[++last] = pieces[i];
  }
  pieces.resize(last + 1);
}

// Joins pieces that have become alike. Where they are too many all that the mem fd reaches is given
// up: an access to it is an error.
void bound(std::vector<MappedPiece>& pieces) {
  join(pieces);
  if (pieces.size() <= kMostPieces) return;
  for (MappedPiece& piece : pieces) piece.gone |= piece.by_mem_fd();
  join(pieces);
}

// Returns the pieces as they are after a change. The result is empty if that changes nothing.
std::vector<MappedPiece> changed(std::span<const MappedPiece> pieces, const MemoryChange& change,
                                 uint64_t& bytes_left) {
  std::vector<MappedPiece> result;
  bool changes = false;
  for (const MappedPiece& piece : pieces) {
    const VirtualAddress start = piece.client_address(0), end = start + piece.length_bytes;
    const VirtualAddress from = std::max(start, change.va);
    const VirtualAddress to = std::min(end, change.va + change.length_bytes);
    if (!concerns(change, piece) || from >= to) {
      result.push_back(piece);
      continue;
    }
    changes = true;
    const uint64_t first = from - start, last = to - start;
    if (first != 0) result.push_back(part_of(piece, 0, first));
    result.push_back(part_of(piece, first, last));
    apply(change, result.back());
    if (change.kind == MemoryChangeKind::kOutside) bytes_left += last - first;
    if (last != piece.length_bytes) result.push_back(part_of(piece, last, piece.length_bytes));
  }
  if (!changes) return {};
  bound(result);
  return result;
}

}  // namespace

MrTable::PieceChange MrTable::follow(uint32_t client_id, const MemoryChange& change) {
  PieceChange follows;
  for (const uint32_t index : indices_of(client_id)) {
    MemoryRegionEntry& entry = entries_[index];
    if (entry.key.load(std::memory_order_relaxed) == 0 || (entry.access & kAccessOnDemand) != 0)
      continue;
    auto pieces = changed(entry.pieces, change, follows.bytes_left_);
    if (pieces.empty()) continue;
    const bool partly_gone = entry.partly_gone || std::ranges::any_of(pieces, &MappedPiece::gone);
    follows.changes_.push_back({&entry, std::move(pieces), partly_gone});
  }
  return follows;
}

MrTable::PieceChange MrTable::end_lateness(uint32_t key, uint32_t client_id) {
  PieceChange change;
  MemoryRegionEntry* entry = find(key);
  if (entry == nullptr || entry->client_id != client_id) return change;
  std::vector<MappedPiece> pieces = entry->pieces;
  for (MappedPiece& piece : pieces)
    if (piece.is_late()) piece.host = piece.late_host;
  change.changes_.push_back({entry, std::move(pieces), entry->partly_gone});
  return change;
}

void MrTable::PieceChange::take_effect() {
  for (Change& change : changes_) {
    change.entry->pieces.swap(change.pieces);
    change.entry->partly_gone = change.partly_gone;
    change.entry->fault_since_ns = 0;
    if (change.entry->helper == nullptr)
      change.entry->helper = helper_;
    else
      change.entry->helper->note_change();
    set_gate(*change.entry);
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

std::vector<MrTable::RegionView> MrTable::views() const {
  std::vector<RegionView> views;
  for (uint32_t i = 0; i < capacity_; ++i) {
    const MemoryRegionEntry& entry = entries_[i];
    const uint32_t key = entry.key.load(std::memory_order_relaxed);
    if (key != 0)
      views.push_back({i, key, entry.client_id, entry.pd, entry.iova, entry.length_bytes});
  }
  return views;
}

std::vector<uint32_t> MrTable::keys_of(uint32_t client_id) const {
  std::vector<uint32_t> keys;
  for (const uint32_t index : indices_of(client_id)) {
    const MemoryRegionEntry& entry = entries_[index];
    const bool in_use = entry.key.load(std::memory_order_relaxed) != 0 ||
                        entry.cut_off.load(std::memory_order_relaxed);
    if (in_use) keys.push_back(entry.pending_key);
  }
  return keys;
}

}  // namespace hostnic
