// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/system_change.h"

#include <algorithm>
#include <cerrno>

namespace hostnic::memory {

SystemChange::SystemChange(RegistrarState& state, PageRelease& release, MovedMemory& moved,
                           KeptMemory& kept)
    : state_(state), release_(release), moved_(moved), kept_(kept) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &signals_);
}

SystemChange::~SystemChange() {
  if (!pieces_.empty()) {  // nothing took their place: something was thrown before the call
    const Critical critical(state_);
    let_be();
  }
  if (!kept_parts_.empty()) {
    kept_parts_.insert(kept_parts_.end(), parts_, parts_ + count_);
    state_.revoker.end_change(change_, kept_parts_.data(), kept_parts_.size());
  } else if (begun_) {
    state_.revoker.end_change(change_, parts_, count_);
  }
  pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
}

void SystemChange::may_take(uint64_t start, uint64_t end) {
  if (begun_ || !state_.revoker.runs() || !release_.goes_untold(start, end)) return;
  begun_ = true;
  change_ = state_.revoker.begin_change();
}

void SystemChange::keep(uint64_t start, uint64_t end) noexcept try {
  if (!begun_) return;
  kept_.move_away(start, end, pieces_);
  kept_parts_.reserve(kMostParts + kept_parts_.size() + pieces_.size());
} catch (...) {
  let_be();
}

void SystemChange::let_be() {
  for (const KeptMemory::Piece& piece : pieces_) kept_.move_back(piece);
  pieces_.clear();
}

const std::byte* SystemChange::kept_at(uint64_t at) const {
  for (const KeptMemory::Piece& piece : pieces_)
    if (piece.start <= at && at < piece.end)
      return static_cast<std::byte*>(pointer(piece.place + (at - piece.start)));
  return nullptr;
}

void SystemChange::note_kept(uint64_t start, uint64_t end) {
  if (pieces_.empty()) return;
  const NoNewMappings no_new_mappings;
  const Critical critical(state_);
  std::erase_if(pieces_, [&](const KeptMemory::Piece& piece) {
    if (piece.start < start || end < piece.end) return false;
    kept_parts_.push_back(
        {{piece.start, piece.end - piece.start, MemoryChangeKind::kMoved, 0, piece.place},
         /*noted=*/true});
    kept_.keep(piece);
    return true;
  });
}

void SystemChange::took(uint64_t start, uint64_t end) {
  if (start >= end) return;
  note_kept(start, end);
  const MappingChange gone{{start, end - start, MemoryChangeKind::kGone, 0, 0}, /*noted=*/true};
  if (!begun_) return release_.lose_unmapped(start, end);
  add(gone);
  const int error = errno;
  release_.follow(gone);
  errno = error;
}

void SystemChange::moved(uint64_t start, uint64_t end, uint64_t to) {
  if (start >= end) return;
  if (begun_) add({{start, end - start, MemoryChangeKind::kMoved, 0, to}, /*noted=*/true});
  moved_.note_move(start, to, end - start);
  release_.lose_where_gone(start, end);
}

}  // namespace hostnic::memory
