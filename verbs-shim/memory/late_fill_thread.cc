// SPDX-License-Identifier: BSD-3-Clause
// The thread of late filling: it answers touches, carries out orders, and copies what lies aside.
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "verbs-shim/base/own_descriptors.h"
#include "verbs-shim/memory/background_thread.h"
#include "verbs-shim/memory/late_fill.h"
#include "verbs-shim/memory/own_proc.h"

#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif
#ifndef UFFD_FEATURE_MOVE
#define UFFD_FEATURE_MOVE (1 << 16)
#endif

namespace hostnic::memory {
namespace {

constexpr int64_t kRetryNs = 1'000'000;  // after which a page that could not be had is tried again
// While nobody waits the thread rests as long as it worked, but not longer than this: hostnicd
// wants slices without waking anybody.
constexpr int64_t kLongestRestNs = 2'000'000;
// A registration gives several orders in a row, none of which shall wait for a slice.
constexpr int64_t kNextOrderNs = 500'000, kLongestOrdersNs = 50'000'000;
constexpr int64_t kEagerNs = 10'000'000;     // no rest for so long after a slice was wanted
constexpr uint64_t kStackBytes = 512 << 10;  // of background_thread.cc
constexpr int kFillTries = 200;

int64_t now_ns(clockid_t clock = CLOCK_MONOTONIC) {
  timespec now{};
  clock_gettime(clock, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

}  // namespace

// ---- start

int LateFill::open_descriptors() {
  constexpr int kFlags = O_CLOEXEC | O_NONBLOCK;
  // The program never sees what this thread opens from here on, and can't close it.
  if (unshare(CLONE_FILES) != 0) return errno;
  note_own_table();
  own_mirror_fd_ = fcntl(given_.mirror, F_DUPFD_CLOEXEC, 0);
  if (own_mirror_fd_ < 0) return errno;
  const int own_pagemap_fd = fcntl(given_.pagemap, F_DUPFD_CLOEXEC, 0);
  if (own_pagemap_fd < 0) return errno;
  own_watch_fd_ = given_.watch < 0 ? -1 : fcntl(given_.watch, F_DUPFD_CLOEXEC, 0);
  fd_ = static_cast<int>(syscall(SYS_userfaultfd, kFlags));
  if (fd_ < 0 && given_.lent_device >= 0)
    fd_ = ioctl(given_.lent_device, USERFAULTFD_IOC_NEW, kFlags);
  if (fd_ < 0) return errno;
  const OwnProc proc = keep_own_proc_in_own_table();
  // Its copies of the program's descriptors would keep pipes and sockets open.
  int kept[] = {fd_, own_mirror_fd_, own_pagemap_fd, own_watch_fd_, proc.folder, proc.maps};
  std::ranges::sort(kept);
  unsigned next = 0;
  for (const int each : kept) {
    if (each < 0) continue;
    const auto number = static_cast<unsigned>(each);
    if (number > next) syscall(SYS_close_range, next, number - 1, 0u);
    next = number + 1;
  }
  syscall(SYS_close_range, next, ~0u, 0u);
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_MISSING_SHMEM |
                 UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_MOVE;
  if (ioctl(fd_, UFFDIO_API, &api) != 0) return errno;
  if (const int error = passage_.reserve(); error != 0) return error;
  passage_.open({fd_, own_mirror_fd_, own_pagemap_fd},
                {[](void* self) { static_cast<LateFill*>(self)->read_events(); }, this}, lost_);
  return make_bell();
}

// Makes the page that orders touch.
int LateFill::make_bell() {
  void* bell = map_without_pages(nullptr, kPageBytes);
  if (bell == MAP_FAILED) return errno;
  raw_madvise(bell, kPageBytes, MADV_DONTFORK);
  bell_ = address(bell);
  uffdio_register request{};
  request.range = {bell_, kPageBytes};
  request.mode = UFFDIO_REGISTER_MODE_MISSING;
  return ioctl(fd_, UFFDIO_REGISTER, &request) == 0 ? 0 : errno;
}

void LateFill::run() {
  const uint64_t frame = address(__builtin_frame_address(0));
  stack_start_ = frame - kStackBytes;
  stack_end_ = frame + kStackBytes;
  start_error_ = open_descriptors();
  state_.store(start_error_ == 0 ? State::kRuns : State::kFailed, std::memory_order_release);
  syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
  if (start_error_ != 0) return;
  int64_t pause_ns = -1, orders_until_ns = 0, worked_ns = 0;
  for (;;) {
    wait(pause_ns);
    if (pause_ns < 0) worked_ns = now_ns();  // there was nothing to do
    read_events();
    follow_moved();
    const bool ordered = bell_rings_;
    if (ordered && !obey()) return;
    const int64_t at_ns = now_ns();
    if (ordered) orders_until_ns = at_ns + kNextOrderNs;
    if (at_ns < orders_until_ns && at_ns < worked_ns + kLongestOrdersNs) {
      pause_ns = orders_until_ns - at_ns;
      continue;
    }
    pause_ns = step();
    worked_ns = now_ns();
  }
}

void LateFill::wait(int64_t pause_ns) const {
  pollfd readable{fd_, POLLIN, 0};
  const timespec pause{pause_ns / 1'000'000'000, pause_ns % 1'000'000'000};
  ppoll(&readable, 1, pause_ns < 0 ? nullptr : &pause, nullptr);
}

// ---- events

// Whether an event that is no touch is still to be read: the kernel refuses such requests then.
bool LateFill::change_is_due() const {
  uffdio_writeprotect request{};
  request.range = {bell_, kPageBytes};
  return ioctl(fd_, UFFDIO_WRITEPROTECT, &request) != 0 && errno == EAGAIN;
}

// The pages of a slice that is just being copied may have left the stash.
void LateFill::drop(uint64_t start, uint64_t end) {
  for (const AsideTable::Aside& aside : asides_.all()) {
    if (!aside.overlaps(start, end)) continue;
    const uint64_t from = std::max(aside.start.load(), start), to = std::min(aside.end, end);
    raw_madvise(pointer(from + aside.stash_delta), to - from, MADV_DONTNEED);
  }
  passage_.drop(start, end);
}

// Reads what there is: the kernel refuses copies while a change of mappings waits to be read.
// Nothing is copied here, since whoever copies calls it.
void LateFill::read_events() {
  uffd_msg event;
  // An event that comes after this look is left for the next: what is read without having been
  // looked at would let its thread go on with nothing settled. Faults are read first.
  while (has_event(fd_)) {
    // The thread whose call is to be settled goes on once its event has been read.
    if (settle_ != nullptr && change_is_due())
      for_each_blocked_call(settle_, {own_mirror_fd_, own_watch_fd_, true});
    if (read_events_of(fd_, &event, sizeof(event)) != static_cast<ssize_t>(sizeof(event))) return;
    if (event.event == UFFD_EVENT_PAGEFAULT) {
      want(event.arg.pagefault.address);
    } else if (event.event == UFFD_EVENT_REMAP) {
      const auto& remap = event.arg.remap;
      if (asides_.any_aside(remap.from, remap.from + remap.len) && moved_count_ < kMaxMoved)
        moved_[moved_count_++] = {remap.from, remap.to, remap.len};
    }
  }
}

void LateFill::want(uint64_t va) {
  if (va - bell_ < kPageBytes) {
    bell_rings_ = true;
    return;
  }
  for (size_t i = 0; i < moved_count_; i++)
    if (va - moved_[i].to < moved_[i].length_bytes) return;  // it waits until follow_moved()
  if (const AsideTable::Aside* aside = asides_.find(va); aside != nullptr) {
    SliceState seen = SliceState::kAside;
    asides_.slice(*aside, va).compare_exchange_strong(seen, SliceState::kWanted);
    if (seen != SliceState::kFilled) return;
  }
  supply(page_down(va));
}

// Puts an empty page where the mirror has none any more: the program discarded it.
void LateFill::supply(uint64_t page) const {
  uffdio_zeropage request{};
  request.range = {page, kPageBytes};
  ioctl(fd_, UFFDIO_ZEROPAGE, &request);
  wake(page, page + kPageBytes);
}

void LateFill::wake(uint64_t start, uint64_t end) const {
  if (start >= end) return;
  uffdio_range range{start, end - start};
  ioctl(fd_, UFFDIO_WAKE, &range);
}

// The program moved memory that lies aside: what it moved shows the mirror's pages at another
// address, so these are made. It is watched there as all of the mirror is.
void LateFill::follow_moved() {
  while (moved_count_ != 0) {
    const Moved moved = moved_[moved_count_ - 1];
    fill_all(moved.from, moved.from + moved.length_bytes);
    hand_over(moved.to, moved.to + moved.length_bytes);
    wake(moved.to, moved.to + moved.length_bytes);
    moved_count_--;
  }
}

// ---- filling

// Does the next piece of work: what is wanted, what follows it, what is left. Returns how long to
// wait for an event then; -1: until there is one.
int64_t LateFill::step() {
  const int64_t began_ns = now_ns(), used_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
  const AsideTable::Aside* aside = nullptr;
  uint64_t at = 0;
  if (began_ns >= retry_ns_ &&
      (at = asides_.next_in_state(AsideTable::kPartly, next_, aside)) != 0 &&
      fill_slice(*aside, at, Pages::kAny) != 0)
    retry_ns_ = began_ns + kRetryNs;
  at = asides_.next_in_state(SliceState::kWanted, next_, aside);
  const bool wanted = at != 0;
  if (!wanted && only_wanted_) return kRetryNs;
  if (!wanted) at = asides_.next_in_state(SliceState::kAside, next_, aside);
  if (at != 0) {
    // To make a huge page takes as long again: somebody might be waiting for what comes next.
    const bool eager = wanted || began_ns < eager_until_ns_;
    const int error = fill_slice(*aside, at, eager ? Pages::kAny : Pages::kHuge);
    next_ = at + kSliceBytes;
    if (error != 0) return kRetryNs;
    if (wanted) eager_until_ns_ = began_ns + kEagerNs;
  } else if (!release_filled() && !tidy_some()) {
    return asides_.next_in_state(AsideTable::kPartly, 0, aside) != 0 ? kRetryNs : -1;
  }
  if (now_ns() < eager_until_ns_) return 0;
  return std::min(now_ns(CLOCK_THREAD_CPUTIME_ID) - used_ns, kLongestRestNs);
}

// Returns 0, or an errno value: then the slice stays aside, in part.
int LateFill::fill_slice(const AsideTable::Aside& aside, uint64_t start, Pages pages) {
  if (const int left = passage_.bring(start, aside.stash_delta, aside.takes_out); left != 0) {
    asides_.slice(aside, start).store(AsideTable::kPartly);
    return left;
  }
  if (pages == Pages::kHuge) collapse(start);
  settle(aside, start);
  return 0;
}

// Makes a huge page of a slice, before hostnicd uses it: it would wait. If the program has mapped
// something else there it does no harm.
void LateFill::collapse(uint64_t start) {
  if (!no_huge_pages_ && raw_madvise(pointer(start), kSliceBytes, MADV_COLLAPSE) != 0)
    no_huge_pages_ = errno == EINVAL;
}

int LateFill::fill_all(uint64_t start, uint64_t end) {
  for (const AsideTable::Aside& aside : asides_.all()) {
    if (!aside.overlaps(start, end)) continue;
    const uint64_t last = std::min(aside.end, end);
    int tries = 0;
    for (uint64_t at = std::max(aside.start.load(), slice_down(start)); at < last;) {
      const SliceState state = asides_.slice(aside, at);
      if (state == SliceState::kFilled || state == AsideTable::kMoving) {
        at += kSliceBytes;
        continue;
      }
      const int error = fill_slice(aside, at, Pages::kAny);
      read_events();
      if (error == 0) continue;
      if (++tries == kFillTries) return error;
      sleep_ns(kRetryNs);
    }
  }
  return 0;
}

void LateFill::settle(const AsideTable::Aside& aside, uint64_t start) {
  asides_.slice(aside, start).store(SliceState::kFilled, std::memory_order_release);
  discard_private(pointer(start + aside.stash_delta), kSliceBytes);
  wake(start, start + kSliceBytes);
}

// ---- when it is filled

// Makes a huge page of a slice that was deregistered. Returns false if there is none.
bool LateFill::tidy_some() {
  if (tidy_at_ >= tidy_end_) return false;
  raw_madvise(pointer(tidy_at_), kSliceBytes, MADV_COLLAPSE);
  tidy_at_ += kSliceBytes;
  return true;
}

// Forgets memory that is filled. Returns false if there is none.
bool LateFill::release_filled() {
  const AsideTable::Aside* const filled = asides_.filled();
  if (filled == nullptr) return false;
  cut(filled->start, filled->end, Stash::kEmpty);
  tell_();
  return true;
}

}  // namespace hostnic::memory
