// SPDX-License-Identifier: BSD-3-Clause
// Fork. A child must neither share migrated pages with its parent nor lose them: the mirror's
// mappings are not inherited (MADV_DONTFORK). Before a fork the pages are copied to where they came
// from, the "stash", which a child inherits as any private memory; the child puts it in its place,
// and the parent empties it again. A raw fork system call bypasses this; the child then finds
// nothing mapped there.
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "verbs-shim/base/own_descriptors.h"
#include "verbs-shim/memory/critical.h"

namespace hostnic::memory {
void MemoryRegistrar::install_fork_handlers() {
  pthread_atfork([] { process().before_fork(); }, [] { process().after_fork_in_parent(); },
                 [] { process().after_fork_in_child(); });
}

pid_t MemoryRegistrar::fork_without_handlers(pid_t (*fork)()) {
  if (highest_.load(std::memory_order_relaxed) == 0) return fork();
  process().before_fork();
  const pid_t child = fork();
  child == 0 ? process().after_fork_in_child() : process().after_fork_in_parent();
  return child;
}

void MemoryRegistrar::before_fork() {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  mutex_.lock();
  fork_signals_ = before;
  // Cancellation is off for the handlers: fork() is no cancellation point.
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &fork_cancel_state_);
  snapshots_.clear();
  if (!table_.empty()) try {
      // Mappings whose end the kernel did not tell of yet must not come to life again in the child.
      lose_where_gone(lowest_.load(), highest_.load());
      // What nobody has registered is shared with the child as other memory is, and not copied.
      if (parked_ && may_move_pages()) unpark(Unpark::kAll);
      late_.fill(lowest_.load(), highest_.load());
      copy_for_child();
    } catch (...) {  // no memory for a list of the process's areas: the child goes without
    }
}

// Makes copies of what is in the mirror where a child inherits them. What is left out is not mapped
// in the child: registered memory after ibv_fork_init(), what a device keeps from getting into the
// mirror, and everything for which there is no memory.
void MemoryRegistrar::copy_for_child() {
  if (counters_.in_mirror_bytes == 0 && !lost_in_use_) return;
  RawVector<Area> areas;
  if (!read_areas(0, kMirrorBytes, areas)) return;
  std::erase_if(areas, [this](const Area& area) {
    return !area.shared || !area.same_file_as(mirror_major_, mirror_minor_, mirror_inode_);
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

void MemoryRegistrar::copy_for_child(const Area& area) {
  uint64_t at = area.start;  // what has grown or moved by a bare mremap is not in the table
  for (auto it = table_.first_after(area.start); it != table_.end() && it->first < area.end; ++it) {
    const PageRange& range = it->second;
    if (range.place != PagePlace::kMirror || range.stash_delta == 0) continue;
    const uint64_t start = std::max(area.start, it->first), end = std::min(area.end, range.end);
    copy_grown_for_child(area, at, start);
    at = end;
    if (skip_copy_in_child_.load() && range.registrations != 0) continue;
    if (late_.any_aside(start, end)) continue;
    if (migrator_.copy_to_stash(start, end, range.stash_delta, area.prot) == 0)
      snapshots_.push_back({start, end, start + range.stash_delta});
  }
  copy_grown_for_child(area, at, area.end);
}

// Pages of the mirror that have no stash where they are.
void MemoryRegistrar::copy_grown_for_child(const Area& area, uint64_t start, uint64_t end) {
  if (start >= end) return;
  void* const copy =
      migrator_.copy_elsewhere(area.offset + (start - area.start), end - start, area.prot);
  if (copy != nullptr) snapshots_.push_back({start, end, address(copy), /*shifted=*/true});
}

void MemoryRegistrar::end_fork() {
  const sigset_t before = fork_signals_;
  const int cancel_state = fork_cancel_state_;
  mutex_.unlock();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setcancelstate(cancel_state, nullptr);
}

void MemoryRegistrar::after_fork_in_parent() {
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
  end_fork();
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

void MemoryRegistrar::after_fork_in_child() {
  const int saved_errno = errno;
  lend_kept_in_child();
  for (const Snapshot& snapshot : snapshots_) {
    const uint64_t length = snapshot.end - snapshot.start;
    move_in_parts(snapshot.copy, length, snapshot.start);
  }
  snapshots_.clear();
  for (const auto& [start, range] : table_)  // of the stash, what is not in its place now
    if (range.place == PagePlace::kMirror && range.stash_delta != 0)
      raw_munmap(pointer(start + range.stash_delta), range.end - start);
  forget_parent();
  errno = saved_errno;
  end_fork();
}

// Forgets the descriptors, because they lead to the parent's memory. A device opened in the child
// begins anew.
void MemoryRegistrar::forget_parent() {
  table_.clear();
  userfault_.close();
  watch_.forget_parent();
  mirror_watch_.forget_parent();
  revoker_.forget_parent();
  late_.forget_parent();
  own_threads_.clear();
  new (&threads_mutex_) std::mutex;
  parked_ = wants_home_ = false;
  for (std::atomic<int>* fd : {&mem_fd_, &mirror_fd_}) {
    close_ours(fd->exchange(-1));
  }
  close_ours(std::exchange(pagemap_fd_, -1));
  mirror_inode_ = 0;
  environment_read_ = false;
  reason_[0] = '\0';
  counters_ = {};
  moved_.clear();
  pins_.clear();
  pin_uses_.clear();
  lost_in_use_ = false;
  update_bounds();
}

}  // namespace hostnic::memory
