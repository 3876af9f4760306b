// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/forks.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "verbs-shim/base/own_descriptors.h"
#include "verbs-shim/memory/blocked_calls.h"
#include "verbs-shim/memory/critical.h"
#include "verbs-shim/memory/own_proc.h"
#include "verbs-shim/memory/own_process.h"

namespace hostnic::memory {

void Forks::before() {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  state_.mutex.lock();
  fork_signals_ = before;
  // Cancellation is off for the handlers: fork() is no cancellation point.
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &fork_cancel_state_);
  snapshots_.clear();
  try {
    if (!state_.table.empty()) {
      // Mappings whose end the kernel did not tell of yet must not come to life again in the child.
      release_.lose_where_gone(state_.lowest.load(), state_.highest.load());
      // What nobody has registered is shared with the child as other memory is, and not copied.
      if (state_.parked && state_.may_move_pages()) release_.unpark(PageRelease::Unpark::kAll);
      state_.late.fill(state_.lowest.load(), state_.highest.load());
    }
    large_moves_.bring_home(0, kMirrorBytes);
    if (state_.has_migrated.load()) copy_for_child();
  } catch (...) {  // no memory for a list of the process's areas: the child goes without
  }
}

// Makes copies of what is in the mirror where a child inherits them. What is left out is not mapped
// in the child: registered memory after ibv_fork_init(), what a device keeps from getting into the
// mirror, and everything for which there is no memory.
void Forks::copy_for_child() {
  RawVector<Area> areas;
  if (!read_areas(0, kMirrorBytes, areas)) return;
  std::erase_if(areas, [this](const Area& area) {
    return !area.shared ||
           !area.same_file_as(state_.mirror_major, state_.mirror_minor, state_.mirror_inode);
  });
  for (const Area& area : areas) {
    // A bare MADV_DOFORK would have the child share them.
    raw_madvise(pointer(area.start), area.end - area.start, MADV_DONTFORK);
    if (area.offset == area.start)
      copy_for_child(area);
    else
      copy_grown_for_child(area, area.start, area.end);
  }
}

void Forks::copy_for_child(const Area& area) {
  uint64_t at = area.start;  // what has grown or moved by a bare mremap is not in the table
  for (auto it = state_.table.first_after(area.start);
       it != state_.table.end() && it->first < area.end; ++it) {
    const PageRange& range = it->second;
    if (range.place != PagePlace::kMirror || range.stash_delta == 0) continue;
    const uint64_t start = std::max(area.start, it->first), end = std::min(area.end, range.end);
    copy_grown_for_child(area, at, start);
    at = end;
    if (skip_copy_in_child_.load() && range.registrations != 0) continue;
    if (state_.late.asides().any_aside(start, end)) continue;
    if (state_.migrator.copy_to_stash(start, end, range.stash_delta, area.prot) == 0)
      snapshots_.push_back({start, end, start + range.stash_delta});
  }
  copy_grown_for_child(area, at, area.end);
}

// Pages of the mirror that have no stash where they are.
void Forks::copy_grown_for_child(const Area& area, uint64_t start, uint64_t end) {
  if (start >= end) return;
  void* const copy =
      state_.migrator.copy_elsewhere(area.offset + (start - area.start), end - start, area.prot);
  if (copy != nullptr) snapshots_.push_back({start, end, address(copy), /*shifted=*/true});
}

void Forks::end() {
  const sigset_t before = fork_signals_;
  const int cancel_state = fork_cancel_state_;
  state_.mutex.unlock();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setcancelstate(cancel_state, nullptr);
}

void Forks::after_in_parent() {
  const int saved_errno = errno;
  for (const Snapshot& snapshot : snapshots_) {
    const uint64_t length = snapshot.end - snapshot.start;
    if (snapshot.shifted)
      raw_munmap(pointer(snapshot.copy), length);
    else
      Migrator::empty_stash(snapshot.copy, length);
  }
  snapshots_.clear();
  errno = saved_errno;
  end();
}

namespace {

// Moves a copy to its place in the child. Advice about a fork may have divided it into areas.
void move_in_parts(uint64_t from, uint64_t length, uint64_t to) {
  constexpr int kFlags = MREMAP_MAYMOVE | MREMAP_FIXED;
  if (raw_mremap(pointer(from), length, length, kFlags, pointer(to)) != MAP_FAILED) return;
  RawVector<Area> areas;
  if (!read_areas(from, from + length, areas)) return;
  for (const Area& area : areas) {
    const uint64_t start = std::max(area.start, from), end = std::min(area.end, from + length);
    raw_mremap(pointer(start), end - start, end - start, kFlags, pointer(to + (start - from)));
  }
}

}  // namespace

void Forks::after_in_child() {
  const int saved_errno = errno;
  lend_kept_in_child();
  forget_own_proc();
  OwnProcess::set_in_child();
  for (const Snapshot& snapshot : snapshots_) {
    const uint64_t length = snapshot.end - snapshot.start;
    move_in_parts(snapshot.copy, length, snapshot.start);
  }
  snapshots_.clear();
  for (const auto& [start, range] : state_.table)  // of the stash, what is not in its place now
    if (range.place == PagePlace::kMirror && range.stash_delta != 0)
      raw_munmap(pointer(start + range.stash_delta), range.end - start);
  forget_parent();
  errno = saved_errno;
  end();
}

// Forgets the descriptors, because they lead to the parent's memory. A device opened in the child
// begins anew.
void Forks::forget_parent() {
  state_.table.clear();
  state_.userfault.close();
  state_.watch.forget_parent();
  state_.mirror_watch.forget_parent();
  state_.revoker.forget_parent();
  state_.late.forget_parent();
  forget_readers();
  state_.own_threads.clear();
  state_.parked = state_.wants_home = false;
  for (std::atomic<int>* fd : {&state_.mem_fd, &state_.mirror_fd}) {
    close_ours(fd->exchange(-1));
  }
  close_ours(std::exchange(state_.pagemap_fd, -1));
  state_.mirror_inode = 0;
  state_.reason[0] = '\0';
  state_.counters = {};
  moved_.forget();
  kept_.forget();
  pins_.forget();
  state_.lost_in_use = false;
  state_.has_migrated.store(false);
  state_.moved_views.clear();
  state_.has_moved_views.store(false);
  state_.update_bounds();
}

}  // namespace hostnic::memory
