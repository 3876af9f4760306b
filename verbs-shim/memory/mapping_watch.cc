// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/mapping_watch.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "protocol/hostif/unique_fd.h"
#include "verbs-shim/base/own_descriptors.h"
#include "verbs-shim/memory/background_thread.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif

namespace hostnic::memory {
namespace {

constexpr size_t kEventsAtOnce = 16;
// The time that a registration waits for other threads' unmappings: some seconds, and then it may
// be taken for what was unmapped, which is an error to its user and harms nobody.
constexpr unsigned kYields = 100, kMostTries = 100'000;
constexpr long kReportPauseNs = 20'000;
// The thread that has moved memory raises its events one after the other.
constexpr int kMoveMs = 100;

}  // namespace

// Asks for the events. With WP_ASYNC (Linux 6.7) any memory can be watched, without it none of a
// disk's files; nobody asks for its write protection. Returns 0 or an errno value.
int MappingWatch::ask_for_events(int fd) {
  constexpr uint64_t kEvents = UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP |
                               UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM;
  const uint64_t events = kEvents | (settle_ != nullptr ? UFFD_FEATURE_EVENT_REMOVE : 0);
  for (const bool any : {true, false}) {
    uffdio_api api{};
    api.api = UFFD_API;
    api.features = events | (any ? UFFD_FEATURE_WP_ASYNC : 0);
    takes_any_memory_ = any;
    if (ioctl(fd, UFFDIO_API, &api) == 0) return 0;
  }
  return errno;
}

bool MappingWatch::start(Revoker& revoker, const char* thread_name, SettleCall* settle) {
  if (fd_ >= 0) return true;
  const UniqueFd opened(
      static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY)));
  const int fd = keep_copy(opened.get());
  if (fd < 0) {
    std::snprintf(error_, sizeof(error_), "userfaultfd: %s", std::strerror(errno));
    return false;
  }
  settle_ = settle;
  int error = ask_for_events(fd);
  if (error == 0) {
    fd_ = fd;
    revoker_ = &revoker;
    reports_.store(true);
    error = start_background_thread(
        thread_name, [](void* self) { static_cast<MappingWatch*>(self)->run(); }, this);
  }
  if (error == 0) {
    error_[0] = '\0';
    return true;
  }
  std::snprintf(error_, sizeof(error_), "watching mappings: %s", std::strerror(error));
  reports_.store(false);
  close_ours(fd);
  fd_ = -1;
  return false;
}

// Reads events until the end; it waits for nobody who might unmap watched memory, so it takes no
// lock but the revoker's.
void MappingWatch::run() {
  while (waits_for_events() && read_events()) continue;
  reports_.store(false);
}

bool MappingWatch::waits_for_events() {
  pollfd readable{fd_, POLLIN, 0};
  if (poll(&readable, 1, -1) < 0 && errno != EINTR) return false;
  if ((readable.revents & POLLNVAL) != 0) return false;
  // A program that closes all descriptors, by system calls of its own, may have got this number for
  // a file.
  uffdio_range nothing{};
  return ioctl(fd_, UFFDIO_WAKE, &nothing) != 0 && errno == EINVAL;
}

// Reads events; reading one lets the thread that caused it go on. An event tells too late what
// there is to settle: the calls that threads wait in are looked at before, and one event is read at
// a time.
bool MappingWatch::read_events() {
  const size_t at_once = settle_ != nullptr ? 1 : kEventsAtOnce;
  uint64_t change = revoker_->begin_change(Revoker::Notice::kByReport);
  // What has been settled and has its event still to come, and what had it last.
  uint64_t moved_from = 0, told_from = 0;
  for (;;) {
    uffd_msg events[kEventsAtOnce];
    // Only an event that was there before the calls were looked at is read: the oldest one, whose
    // thread was seen. One that comes in between would let its thread go on with nothing settled.
    // Gates stay closed until a move is told: what lies at the old address is something else.
    const bool is_due = settle_ == nullptr || has_event(fd_, moved_from != 0 ? kMoveMs : 0);
    if (settle_ != nullptr && is_due)
      if (const uint64_t from = for_each_blocked_call(settle_, {-1, fd_, false});
          from != 0 && from != told_from)
        moved_from = from;
    const ssize_t got = !is_due              ? 0
                        : settle_ != nullptr ? read_events_of(fd_, events, sizeof(events[0]))
                                             : read(fd_, events, sizeof(events));
    const int error = errno;
    const size_t count = got > 0 ? static_cast<size_t>(got) / sizeof(events[0]) : 0;
    MappingChange changes[kEventsAtOnce];
    size_t ranges = 0;
    for (size_t i = 0; i < count; i++) {
      if (events[i].event == UFFD_EVENT_UNMAP) {
        const auto& gone = events[i].arg.remove;
        changes[ranges++] = {{gone.start, gone.end - gone.start, MemoryChangeKind::kGone, 0, 0}};
      } else if (events[i].event == UFFD_EVENT_REMAP && events[i].arg.remap.len != 0) {
        const auto& moved = events[i].arg.remap;
        told_from = moved.from;
        if (moved_from == told_from) moved_from = 0;
        changes[ranges++] = {{moved.from, moved.len, MemoryChangeKind::kMoved, 0, moved.to}};
      }
    }
    const bool more = count == at_once;
    // Begins before this one ends.
    const uint64_t next = more ? revoker_->begin_change(Revoker::Notice::kByReport) : 0;
    revoker_->end_change(change, changes, ranges);
    change = next;
    if (more) continue;
    drains_.fetch_add(1, std::memory_order_release);
    return got >= 0 || error == EAGAIN || error == EINTR;
  }
}

// Whether an event is still to be read: from before a watched area goes until its event has been
// read, such requests are refused with EAGAIN; else this one is refused for being about a page of
// our own.
bool MappingWatch::report_is_due() const {
  if (!reports_.load()) return false;
  uffdio_writeprotect request{};
  request.range = {page_down(address(this)), kPageBytes};
  return ioctl(fd_, UFFDIO_WRITEPROTECT, &request) != 0 && errno == EAGAIN;
}

// What was due when it began has been read after two more rounds of the thread: one may have been
// under way. Programs that change their mappings all the time have something due at any moment.
void MappingWatch::wait_for_reports() const {
  const int error = errno;
  const uint32_t begin = drains_.load(std::memory_order_acquire);
  for (unsigned tries = 0;
       tries < kMostTries && report_is_due() && drains_.load(std::memory_order_acquire) - begin < 2;
       tries++) {
    const timespec pause{0, kReportPauseNs};
    tries < kYields ? void(sched_yield()) : void(nanosleep(&pause, nullptr));
  }
  errno = error;
}

bool MappingWatch::watch(uint64_t start, uint64_t end) {
  if (fd_ < 0) return false;
  ranges_.reserve(1);
  uffdio_register request{};
  request.range = {start, end - start};
  request.mode = UFFDIO_REGISTER_MODE_WP;
  if (ioctl(fd_, UFFDIO_REGISTER, &request) != 0) return false;
  forget(start, end);
  // Areas that meet stay apart here: the watch of one may end while the other one is needed.
  ranges_.insert(start, {end});
  return true;
}

void MappingWatch::claim(uint64_t start, uint64_t end) {
  if (fd_ < 0) return;
  uffdio_register request{};
  request.range = {start, end - start};
  request.mode = UFFDIO_REGISTER_MODE_WP;
  ioctl(fd_, UFFDIO_REGISTER, &request);
  forget(start, end);
  ranges_.insert(start, {end});
  ranges_.join(start, end);
}

void MappingWatch::unwatch(uint64_t start, uint64_t end) {
  if (fd_ < 0) return;
  ranges_.split_at(start);
  ranges_.split_at(end);
  for (auto it = ranges_.first_after(start); it != ranges_.end() && it->first < end;) {
    uffdio_range range{it->first, it->second.end - it->first};
    ioctl(fd_, UFFDIO_UNREGISTER, &range);
    it = ranges_.erase(it);
  }
}

void MappingWatch::unwatch_growth(uint64_t start, uint64_t end) {
  uffdio_range range{start, end - start};
  if (fd_ >= 0) ioctl(fd_, UFFDIO_UNREGISTER, &range);
}

bool MappingWatch::note_area(uint64_t start, uint64_t end) {
  const auto known = ranges_.first_after(start);
  if (fd_ < 0 || known == ranges_.end() || known->first >= end) return false;
  ranges_.reserve(3);
  forget(start, end);
  ranges_.insert(start, {end});
  return true;
}

void MappingWatch::unwatch_unknown(uint64_t start, uint64_t end) {
  if (fd_ < 0) return;
  // The kernel would end another userfaultfd's watch as well; to add to that it refuses.
  uffdio_register request{};
  request.range = {start, end - start};
  request.mode = UFFDIO_REGISTER_MODE_WP;
  if (ioctl(fd_, UFFDIO_REGISTER, &request) == 0) ioctl(fd_, UFFDIO_UNREGISTER, &request.range);
}

void MappingWatch::leave(uint64_t start, uint64_t end) {
  forget(start, end);
  uffdio_range range{start, end - start};
  if (fd_ >= 0) ioctl(fd_, UFFDIO_UNREGISTER, &range);
}

void MappingWatch::forget(uint64_t start, uint64_t end) {
  ranges_.split_at(start);
  ranges_.split_at(end);
  for (auto it = ranges_.first_after(start); it != ranges_.end() && it->first < end;)
    it = ranges_.erase(it);
}

bool MappingWatch::covers(uint64_t start, uint64_t end) {
  if (!reports_.load()) return false;
  for (auto it = ranges_.first_after(start); start < end; start = it++->second.end)
    if (it == ranges_.end() || it->first > start) return false;
  return true;
}

bool MappingWatch::next_range(uint64_t va, uint64_t& start, uint64_t& end) {
  const auto it = ranges_.first_after(va);
  if (it == ranges_.end()) return false;
  start = it->first;
  end = it->second.end;
  return true;
}

void MappingWatch::forget_parent() {
  close_ours(std::exchange(fd_, -1));
  reports_.store(false);
  ranges_.clear();
  revoker_ = nullptr;
}

}  // namespace hostnic::memory
