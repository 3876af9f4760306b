// SPDX-License-Identifier: BSD-3-Clause
// Orders of the registrar's, carried out by the thread of late filling, and its list of what lies
// aside.
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>

#include "verbs-shim/memory/late_fill.h"

namespace hostnic::memory {
namespace {

constexpr int kBellTries = 200;

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
  // Who is woken and finds no page rings again: the thread does what else is due in between.
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
      return add();
    case Command::kAdded:
    case Command::kGiveBack:
      mark(start, end, kMoving, SliceState::kAside);
      wake(start, end);
      return 0;
    case Command::kFill:
      error = fill_all(start, end);
      if (error == 0) cut(slice_down(start), slice_up(end));
      return error;
    case Command::kTake:
      mark(start, end, SliceState::kWanted, kMoving);
      mark(start, end, SliceState::kAside, kMoving);
      return 0;
    case Command::kLeave:
      mark(start, end, kMoving, SliceState::kFilled);
      cut(start, end);
      wake(start, end);
      return 0;
    case Command::kTidy:  // the last one is enough: it is for speed only
      tidy_at_ = start;
      tidy_end_ = end;
      return 0;
    case Command::kStop:
      break;
  }
  return 0;
}

// The map's room is given out round and round, so that what hostnicd still looks at stays as it is
// for long.
uint64_t LateFill::find_room(uint64_t slices) const {
  uint64_t at = next_slot_ + slices <= kMapBytes ? next_slot_ : 0;
  for (size_t tries = 0; tries <= 2 * kMaxAsides && at + slices <= kMapBytes; tries++) {
    const auto taken = std::ranges::find_if(asides_, [&](const Aside& aside) {
      return aside.used() && aside.slot(aside.start) < at + slices && at < aside.slot(aside.end);
    });
    if (taken == std::end(asides_)) return at;
    at = taken->slot(taken->end);
    if (at + slices > kMapBytes) at = 0;
  }
  return kMapBytes;
}

int LateFill::add() {
  const uint64_t start = command_start_, end = command_end_, slices = (end - start) / kSliceBytes;
  const auto free = std::ranges::find_if(asides_, [](const Aside& aside) { return !aside.used(); });
  const uint64_t room = slices <= kMapBytes ? find_room(slices) : kMapBytes;
  if (free == std::end(asides_) || room == kMapBytes || any_aside(start, end)) return ENOSPC;
  next_slot_ = room + slices;
  for (uint64_t i = 0; i < slices; i++) map_[room + i].store(kMoving);
  free->end = end;
  free->stash_delta = page_down(command_argument_);
  free->takes_out = (command_argument_ & kTakesOut) != 0;
  free->map_start = start - room * kSliceBytes;
  free->start.store(start, std::memory_order_release);
  asides_in_use_.fetch_add(1);
  return 0;
}

void LateFill::mark(uint64_t start, uint64_t end, SliceState from, SliceState to) {
  for (const Aside& aside : asides_) {
    if (!aside.overlaps(start, end)) continue;
    const uint64_t last = std::min(aside.end, end);
    for (uint64_t at = std::max(aside.start.load(), start); at < last; at += kSliceBytes)
      if (SliceState seen = from; slice(aside, at) == from)
        slice(aside, at).compare_exchange_strong(seen, to);
  }
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
  for (uint64_t at = start; at < end; at += kSliceBytes)
    hand_over(at, at + kSliceBytes);  // not if the program has other memory there
  wake(start, end);
}

// Forgets [start, end), whole slices of which nothing lies aside. In the middle of memory it takes
// an entry; without one the range stays known, as filled.
void LateFill::cut(uint64_t start, uint64_t end) {
  for (Aside& aside : asides_) {
    if (!aside.overlaps(start, end)) continue;
    const uint64_t from = std::max(aside.start.load(), start), to = std::min(aside.end, end);
    let_go(from, to);
    if (from == aside.start) {
      const bool whole = to == aside.end;
      aside.start.store(whole ? 0 : to, std::memory_order_release);
      if (whole) asides_in_use_.fetch_sub(1);
      continue;
    }
    if (to < aside.end) {
      const auto rest =
          std::ranges::find_if(asides_, [](const Aside& other) { return !other.used(); });
      if (rest == std::end(asides_)) continue;
      rest->end = aside.end;
      rest->stash_delta = aside.stash_delta;
      rest->map_start = aside.map_start;
      rest->takes_out = aside.takes_out;
      rest->start.store(to, std::memory_order_release);
      asides_in_use_.fetch_add(1);
    }
    aside.end = from;
  }
}

}  // namespace hostnic::memory
