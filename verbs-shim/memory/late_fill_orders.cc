// SPDX-License-Identifier: BSD-3-Clause
// Orders of the registrar's, carried out by the thread of late filling.
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>

#include "verbs-shim/memory/background_thread.h"
#include "verbs-shim/memory/late_fill.h"

namespace hostnic::memory {
namespace {

constexpr int kBellTries = 200;
constexpr int kLastTries = 1000;
constexpr int64_t kLastPauseNs = 50'000;

}  // namespace

// Carries out the order that is due, if it has not been carried out: who ordered may ring twice.
// Returns false when the thread is to end; it may not touch its members then.
bool LateFill::obey() {
  bell_rings_ = false;
  const int fd = fd_;
  uffdio_zeropage page{};
  page.range = {bell_, kPageBytes};
  const uint64_t number = ordered_.load(std::memory_order_acquire);
  const bool due = done_.load(std::memory_order_relaxed) != number;
  const bool goes_on = !due || command_ != Command::kStop;
  if (due) {
    result_ = goes_on ? carry_out() : 0;
    if (!goes_on) {
      ioctl(fd, UFFDIO_UNREGISTER, &page.range);
      done_.store(number, std::memory_order_release);
      return false;
    }
    done_.store(number, std::memory_order_release);
  }
  // A thread that is woken and finds no page rings again: what else is due is done in between.
  for (int tries = 0; tries < kBellTries && ioctl(fd, UFFDIO_ZEROPAGE, &page) != 0; tries++) {
    if (errno == EEXIST) break;
    if (errno == EAGAIN) read_events();
    let_others_run(tries);
  }
  wake(bell_, bell_ + kPageBytes);
  return true;
}

int LateFill::carry_out() {
  const uint64_t start = command_start_, end = command_end_;
  uffdio_register request{};
  int error = 0;
  switch (command_) {
    case Command::kPrepare:  // the mirror's mapping that is about to take a place
      request.range = {start, end - start};
      request.mode = UFFDIO_REGISTER_MODE_MISSING;
      return ioctl(fd_, UFFDIO_REGISTER, &request) == 0 ? 0 : errno;
    case Command::kAdd:
      return asides_.add(start, end, page_down(command_argument_),
                         (command_argument_ & kTakesOut) != 0);
    case Command::kAdded:
    case Command::kGiveBack:
      asides_.mark(start, end, AsideTable::kMoving, SliceState::kAside);
      wake(start, end);
      return 0;
    case Command::kFill:
      error = fill_all(start, end);
      if (error == 0) cut(slice_down(start), slice_up(end), Stash::kEmpty);
      return error;
    case Command::kTake:
      asides_.mark(start, end, SliceState::kWanted, AsideTable::kMoving);
      asides_.mark(start, end, SliceState::kAside, AsideTable::kMoving);
      return 0;
    case Command::kLeave:
      asides_.mark(start, end, AsideTable::kMoving, SliceState::kFilled);
      cut(start, end, Stash::kGone);
      wake(start, end);
      return 0;
    case Command::kTidy:  // the last one is enough: it is for speed only
      tidy_at_ = start;
      tidy_end_ = end;
      return 0;
    case Command::kDrop:
      drop(start, end);
      return 0;
    case Command::kStop:
      break;
  }
  return 0;
}

// Has what is filled watched as all of the mirror is. Returns false if it is not the mirror's.
bool LateFill::hand_over(uint64_t start, uint64_t end) const {
  uffdio_register request{};
  request.range = {start, end - start};
  request.mode = UFFDIO_REGISTER_MODE_WP;
  if (ioctl(fd_, UFFDIO_UNREGISTER, &request.range) != 0) return false;
  if (own_watch_fd_ >= 0) ioctl(own_watch_fd_, UFFDIO_REGISTER, &request);
  return true;
}

// From here on first touches in the range are answered by the kernel.
void LateFill::let_go(uint64_t start, uint64_t end) const {
  if (hand_over(start, end)) return;
  for (uint64_t at = start; at < end; at += kSliceBytes) hand_over_pieces(at, at + kSliceBytes);
  wake(start, end);
}

// The kernel refuses a range in which the program has other memory that no userfaultfd can watch
// (SysV segments): the pages beside it are handed over all the same. Who would bring them home, or
// move them, could not stop them otherwise.
void LateFill::hand_over_pieces(uint64_t start, uint64_t end) const {
  if (hand_over(start, end) || end - start == kPageBytes) return;
  const uint64_t middle = page_down(start + (end - start) / 2);
  hand_over_pieces(start, middle);
  hand_over_pieces(middle, end);
}

// A call that changes the mappings may have begun before: its event comes here, and is settled as
// one about memory that is in the table.
void LateFill::read_last_events() {
  for (int tries = 0; tries < kLastTries && change_is_due(); tries++) {
    read_events();
    sleep_ns(kLastPauseNs);
  }
}

void LateFill::cut(uint64_t start, uint64_t end, Stash stash) {
  asides_.cut(start, end, [this, stash](uint64_t from, uint64_t to, uint64_t stash_delta) {
    let_go(from, to);
    read_last_events();
    if (stash == Stash::kGone) return;
    raw_munlock(pointer(from + stash_delta), to - from);
    Migrator::empty_stash(from + stash_delta, to - from);
  });
}

}  // namespace hostnic::memory
