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

#include "verbs-shim/memory/late_fill.h"

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

void sleep_ns(int64_t ns) {
  const timespec pause{0, ns};
  nanosleep(&pause, nullptr);
}

}  // namespace

// ---- start

int LateFill::open_descriptors() {
  constexpr int kFlags = O_CLOEXEC | O_NONBLOCK;
  // The program never sees what this thread opens from here on, and can't close it.
  if (unshare(CLONE_FILES) != 0) return errno;
  own_mirror_fd_ = fcntl(given_.mirror, F_DUPFD_CLOEXEC, 0);
  if (own_mirror_fd_ < 0) return errno;
  own_pagemap_fd_ = fcntl(given_.pagemap, F_DUPFD_CLOEXEC, 0);
  if (own_pagemap_fd_ < 0) return errno;
  own_watch_fd_ = given_.watch < 0 ? -1 : fcntl(given_.watch, F_DUPFD_CLOEXEC, 0);
  fd_ = static_cast<int>(syscall(SYS_userfaultfd, kFlags));
  if (fd_ < 0 && given_.lent_device >= 0)
    fd_ = ioctl(given_.lent_device, USERFAULTFD_IOC_NEW, kFlags);
  if (fd_ < 0) return errno;
  // Its copies of the program's descriptors would keep pipes and sockets open.
  int kept[] = {fd_, own_mirror_fd_, own_pagemap_fd_, own_watch_fd_};
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
  return ioctl(fd_, UFFDIO_API, &api) == 0 ? reserve_window() : errno;
}

// Reserves the addresses that pages pass through, and makes the page that orders touch.
int LateFill::reserve_window() {
  if (window_ == 0) {
    void* at = raw_mmap(nullptr, 3 * kSliceBytes, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return errno;
    raw_madvise(at, 3 * kSliceBytes, MADV_DONTFORK);
    window_ = slice_up(address(at));
  }
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
  for (const Aside& aside : asides_) {
    if (!aside.overlaps(start, end)) continue;
    const uint64_t from = std::max(aside.start.load(), start), to = std::min(aside.end, end);
    raw_madvise(pointer(from + aside.stash_delta), to - from, MADV_DONTNEED);
  }
  const uint64_t from = std::max(copying_, start), to = std::min(copying_ + kSliceBytes, end);
  if (copying_ != 0 && from < to) std::memset(pointer(window_ + (from - copying_)), 0, to - from);
}

// Reads what there is: the kernel refuses copies while a change of mappings waits to be read.
// Nothing is copied here, since whoever copies calls it.
void LateFill::read_events() {
  uffd_msg event;
  for (;;) {
    // The thread whose call is to be settled goes on once its event has been read.
    if (settle_ != nullptr && change_is_due())
      for_each_blocked_call(settle_, {own_mirror_fd_, own_watch_fd_, true});
    if (read_events_of(fd_, &event, sizeof(event)) != static_cast<ssize_t>(sizeof(event))) return;
    if (event.event == UFFD_EVENT_PAGEFAULT) {
      want(event.arg.pagefault.address);
    } else if (event.event == UFFD_EVENT_REMAP) {
      const auto& remap = event.arg.remap;
      if (any_aside(remap.from, remap.from + remap.len) && moved_count_ < kMaxMoved)
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
  if (const Aside* aside = find(va); aside != nullptr) {
    SliceState seen = SliceState::kAside;
    slice(*aside, va).compare_exchange_strong(seen, SliceState::kWanted);
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
// address, so these are made.
void LateFill::follow_moved() {
  while (moved_count_ != 0) {
    const Moved moved = moved_[moved_count_ - 1];
    fill_all(moved.from, moved.from + moved.length_bytes);
    uffdio_range range{moved.to, moved.length_bytes};
    ioctl(fd_, UFFDIO_UNREGISTER, &range);
    wake(moved.to, moved.to + moved.length_bytes);
    moved_count_--;
  }
}

// ---- filling

// Does the next piece of work: what is wanted, what follows it, what is left. Returns how long to
// wait for an event then; -1: until there is one.
int64_t LateFill::step() {
  const int64_t began_ns = now_ns(), used_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
  const Aside* aside = nullptr;
  uint64_t at = 0;
  if (began_ns >= retry_ns_ && (at = next_in_state(kPartly, next_, aside)) != 0 &&
      fill_slice(*aside, at, Pages::kAny) != 0)
    retry_ns_ = began_ns + kRetryNs;
  at = next_in_state(SliceState::kWanted, next_, aside);
  const bool wanted = at != 0;
  if (!wanted && only_wanted_) return kRetryNs;
  if (!wanted) at = next_in_state(SliceState::kAside, next_, aside);
  if (at != 0) {
    // To make a huge page takes as long again: somebody might be waiting for what comes next.
    const bool eager = wanted || began_ns < eager_until_ns_;
    const int error = fill_slice(*aside, at, eager ? Pages::kAny : Pages::kHuge);
    next_ = at + kSliceBytes;
    if (error != 0) return kRetryNs;
    if (wanted) eager_until_ns_ = began_ns + kEagerNs;
  } else if (!release_filled() && !tidy_some()) {
    return next_in_state(kPartly, 0, aside) != 0 ? kRetryNs : -1;
  }
  if (now_ns() < eager_until_ns_) return 0;
  return std::min(now_ns(CLOCK_THREAD_CPUTIME_ID) - used_ns, kLongestRestNs);
}

// The first slice in a state, from `from` on and round; 0 if there is none.
uint64_t LateFill::next_in_state(SliceState state, uint64_t from, const Aside*& found) const {
  uint64_t after = UINT64_MAX, first = UINT64_MAX;
  const Aside *after_in = nullptr, *first_in = nullptr;
  for (const Aside& aside : asides_) {
    if (!aside.used()) continue;
    for (uint64_t at = aside.start; at < aside.end; at += kSliceBytes) {
      if (slice(aside, at).load(std::memory_order_relaxed) != state) continue;
      if (at < first) {
        first = at;
        first_in = &aside;
      }
      if (at < from) continue;
      if (at < after) {
        after = at;
        after_in = &aside;
      }
      break;
    }
  }
  found = after_in != nullptr ? after_in : first_in;
  return after_in != nullptr ? after : first_in != nullptr ? first : 0;
}

// Copies a slice to its place, which the kernel does only as long as the place is what we put
// there: what the program maps there otherwise is not touched. Pages are taken out of the stash
// before: a device may have one in its hands since before it moved, and still write to it. Returns
// 0, or an errno value: then the slice stays aside, in part if it says so.
int LateFill::fill_slice(const Aside& aside, uint64_t start, Pages pages) {
  const uint64_t end = start + kSliceBytes;
  bool takes_out = aside.takes_out;
  int left = takes_out && !map_transit() ? ENOMEM : 0;  // why something is left
  if (takes_out) copying_ = start;
  for (uint64_t at = start; at < end && left != ENOMEM;) {
    const uint64_t stash = at + aside.stash_delta;
    uint64_t length = end - at, source = stash, done = 0;
    if (takes_out) {
      const uint64_t transit = window_ + (at - start);
      int error = take_out(transit, source, length);
      if (error == ENOENT) error = take_out(transit, source, length = kPageBytes);  // not whole
      if (error == EINVAL) {
        takes_out = false;  // memory that the kernel can't move
      } else if (error == EAGAIN) {
        left = EBUSY;  // all of it, until later
        break;
      } else if (error != 0 && !is_lost(at, stash)) {
        left = EBUSY;
        at += kPageBytes;
        continue;
      } else if (error == 0) {
        source = transit;
      }
    }
    const int error = put_in(at, source, length, done);
    at += done;
    if (error == 0) continue;
    if (source != stash) {
      put_back(stash + done, source + done, length - done);
    } else if (is_lost(at, stash + done)) {
      lose(at);
      at += kPageBytes;
      continue;
    }
    left = error;
    break;
  }
  copying_ = 0;
  if (aside.takes_out) unmap_transit();
  if (left != 0) {
    slice(aside, start).store(kPartly);
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
  for (const Aside& aside : asides_) {
    if (!aside.overlaps(start, end)) continue;
    const uint64_t last = std::min(aside.end, end);
    int tries = 0;
    for (uint64_t at = std::max(aside.start.load(), slice_down(start)); at < last;) {
      const SliceState state = slice(aside, at);
      if (state == SliceState::kFilled || state == kMoving) {
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

void LateFill::settle(const Aside& aside, uint64_t start) {
  slice(aside, start).store(SliceState::kFilled, std::memory_order_release);
  raw_madvise(pointer(start + aside.stash_delta), kSliceBytes, MADV_DONTNEED);
  wake(start, start + kSliceBytes);
}

// ---- when it is filled

bool LateFill::is_filled(const Aside& aside) const {
  for (uint64_t at = aside.start; at < aside.end; at += kSliceBytes)
    if (slice(aside, at).load(std::memory_order_relaxed) != SliceState::kFilled) return false;
  return true;
}

// Makes a huge page of a slice that was deregistered. Returns false if there is none.
bool LateFill::tidy_some() {
  if (tidy_at_ >= tidy_end_) return false;
  raw_madvise(pointer(tidy_at_), kSliceBytes, MADV_COLLAPSE);
  tidy_at_ += kSliceBytes;
  return true;
}

// Forgets memory that is filled. Returns false if there is none.
bool LateFill::release_filled() {
  const auto filled = std::ranges::find_if(
      asides_, [this](const Aside& aside) { return aside.used() && is_filled(aside); });
  if (filled == std::end(asides_)) return false;
  cut(filled->start, filled->end);
  tell_();
  return true;
}

}  // namespace hostnic::memory
