// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/revoker.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "verbs-shim/base/cancellation.h"
#include "verbs-shim/memory/background_thread.h"

namespace hostnic::memory {
namespace {

// A transfer that takes longer than this waits for something else than memory, and nobody may wait
// for that.
constexpr uint64_t kLongestTransferNs = 1'000'000'000;
constexpr unsigned kSpins = 1000;
// A program that changes its mappings all the time closes the gates again and again. After so long
// the NICs that want to get through are let through first, for which a change waits at most so
// long; longer, if they have had no processor since.
constexpr uint64_t kClosedNs = 2'000'000, kThroughNs = 10'000'000, kStarvedNs = 100'000'000;
// Nor does a change begin while so many wait to be told: registrations wait for all of them.
constexpr size_t kMostUntold = 32;
// A caller of tell() goes on without an answer after that time.
constexpr uint64_t kLongestTellNs = 2'000'000'000;
// So long a call waits until the registrar knows what was reported before.
constexpr uint64_t kKnownNs = 10'000'000;
// The capacity that is reserved; with more ranges or devices vectors grow.
constexpr size_t kRangesAtOnce = 1024, kDevices = 512;

// The number of changes that this thread has begun and not ended, and the latest report of them.
thread_local unsigned own_changes = 0;
thread_local uint64_t own_report = 0;

void futex_wait(std::atomic<uint32_t>& word, uint32_t value) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
void pause_briefly() {
  const timespec pause{0, 20'000};
  nanosleep(&pause, nullptr);
}
void futex_wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void wait_for_transfer(const MemoryGate& gate, uint64_t& deadline_ns) {
  for (unsigned spins = 0; gate.in_transfer.load(std::memory_order_acquire) != 0; spins++) {
    if (spins < kSpins) continue;
    if (deadline_ns == 0) deadline_ns = now_ns() + kLongestTransferNs;
    if (now_ns() > deadline_ns) return;
    pause_briefly();
  }
}

}  // namespace

// Holds a mutex with all signals blocked: a handler on this thread might unmap memory.
class Revoker::Quiet {
 public:
  explicit Quiet(std::mutex& mutex) : mutex_(mutex) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &signals_);
    mutex_.lock();
  }
  ~Quiet() {
    mutex_.unlock();
    pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
  }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;

 private:
  std::mutex& mutex_;
  sigset_t signals_;
};

void Revoker::attach(RegionUser& user) {
  const Quiet quiet(mutex_);
  users_.push_back(&user);
  user.memory_gate().closed.store(closers_ != 0 ? 1 : 0, std::memory_order_seq_cst);
}

void Revoker::detach(RegionUser& user) {
  const std::lock_guard no_calls(users_mutex_);
  const Quiet quiet(mutex_);
  std::erase(users_, &user);
}

int Revoker::start(Follow follow) {
  if (runs()) return 0;
  follow_ = follow;
  {
    const Quiet quiet(mutex_);
    parts_.reserve(kRangesAtOnce);
    told_.reserve(kRangesAtOnce);
    ended_changes_.reserve(kRangesAtOnce);
    for (RawVector<uint64_t>* changes : {&changes_, &told_changes_, &untold_, &reports_, &unknown_})
      changes->reserve(kRangesAtOnce);
    for (RawVector<RegionUser*>* users : {&users_, &told_users_}) users->reserve(kDevices);
  }
  const int error = start_background_thread(
      "hostnic-revoke", [](void* self) { static_cast<Revoker*>(self)->run(); }, this);
  if (error == 0) runs_.store(true, std::memory_order_release);
  return error;
}

void Revoker::close_gates() {
  for (RegionUser* user : users_) user->memory_gate().closed.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  uint64_t deadline_ns = 0;
  for (RegionUser* user : users_) wait_for_transfer(user->memory_gate(), deadline_ns);
}

void Revoker::open_gates_if_done() {
  if (closers_ != 0) return;
  for (RegionUser* user : users_) {
    user->memory_gate().closed.store(0, std::memory_order_seq_cst);
    user->memory_gate_opened();
  }
  closed_since_ns_ = 0;
}

// Whether a NIC wants to get through gates that have been closed for long, or that were and have
// just been opened; or whether there is more to tell than is told in a moment.
bool Revoker::nics_come_first() {
  if (untold_.size() >= kMostUntold) return true;
  if (closed_since_ns_ != 0 && now_ns() - closed_since_ns_ < kClosedNs) return false;
  return std::ranges::any_of(users_, [](RegionUser* user) {
    return user->memory_gate().wanted.load(std::memory_order_acquire) != MemoryGate::kNobody;
  });
}

// Whether all NICs that want to get through have had a turn since `since_ns`; of helpers nobody
// knows. NICs are woken: who wanted it may be no more, and its NIC asleep.
bool Revoker::nics_have_looked(uint64_t since_ns) {
  const std::lock_guard lock(mutex_);
  bool all = true;
  for (RegionUser* user : users_) {
    const uint32_t by = user->memory_gate().wanted.load(std::memory_order_acquire);
    const bool looked = by == MemoryGate::kLcore && user->nic_turn_ns() > since_ns;
    if (by == MemoryGate::kNobody || looked) continue;
    all = false;
    user->memory_gate_opened();
  }
  return all;
}

void Revoker::let_nics_through() {
  if (own_changes != 0) return;  // this thread keeps the gates closed itself
  const uint64_t begin_ns = now_ns();
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (!nics_come_first()) return;
    }
    const uint64_t waited_ns = now_ns() - begin_ns;
    if (waited_ns > kStarvedNs ||
        (waited_ns > kThroughNs && nics_have_looked(begin_ns + kThroughNs / 2)))
      break;
    pause_briefly();
  }
  // Whoever wanted to get through may be no more: the queue pair has ended.
  const std::lock_guard lock(mutex_);
  for (RegionUser* user : users_)
    user->memory_gate().wanted.store(MemoryGate::kNobody, std::memory_order_relaxed);
}

uint64_t Revoker::begin_change(Notice notice) {
  let_nics_through();
  const std::lock_guard lock(mutex_);
  changes_.push_back(++last_change_);
  untold_.push_back(last_change_);
  if (notice == Notice::kByReport) {
    reports_.push_back(last_change_);
    unknown_.push_back(last_change_);
    unknown_reports.fetch_add(1);
    own_report = last_change_;
  }
  if (closers_++ == 0) {
    closed_since_ns_ = now_ns();
    close_gates();
  }
  own_changes++;
  return last_change_;
}

void Revoker::end_change(uint64_t change, const MappingChange* parts, size_t count) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < count; i++) parts_.push_back({change, parts[i]});
  // A thread that is about to report something may tell of other things meanwhile, and waits.
  const bool is_report = std::erase(reports_, change) != 0;
  const bool comes_first = is_report || own_report != 0 || reports_.empty();
  ended_changes_.push_back({change, comes_first ? 0 : reports_.back(), is_report, 0});
  if (own_report == change) own_report = 0;
  own_changes--;
  work_.fetch_add(1, std::memory_order_release);
  futex_wake(work_);
}

void Revoker::wait_until_known() {
  if (!anything_unknown() || own_report != 0) return;
  const CancellationOff cancellation_off;  // which would pass through calls that throw nothing
  const uint64_t deadline_ns = now_ns() + kKnownNs;
  uint64_t last = 0;
  do {
    {
      const Quiet quiet(mutex_);
      if (last == 0) last = last_change_;
      if (unknown_.empty() || unknown_.front() > last) return;
    }
    pause_briefly();
  } while (now_ns() < deadline_ns);
}

bool Revoker::tell(std::span<const MappingChange> changes) {
  const uint64_t number = begin_change();
  end_change(number, changes.data(), changes.size());
  const uint64_t deadline_ns = now_ns() + kLongestTellNs;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (std::ranges::find(untold_, number) == untold_.end()) return true;
    }
    if (now_ns() > deadline_ns) return false;
    pause_briefly();
  }
}

// Waits for changes that are under way, but not for later ones: a program that changes its mappings
// all the time must not keep another thread from registering. Nor does it wait for a change that
// this thread is at.
void Revoker::begin_registration() {
  uint64_t last = UINT64_MAX;
  for (;;) {
    const uint32_t seen = done_.load(std::memory_order_acquire);
    {
      const Quiet quiet(mutex_);
      if (last == UINT64_MAX) last = own_changes == 0 ? last_change_ : 0;
      if (std::ranges::none_of(changes_, [last](uint64_t change) { return change <= last; })) {
        registrations_++;
        return;
      }
    }
    futex_wait(done_, seen);
  }
}

void Revoker::end_registration() {
  const Quiet quiet(mutex_);
  registrations_--;
  finished_.fetch_add(1, std::memory_order_release);
  futex_wake(finished_);
}

// Whether something came to a place in the same round that a part of it is gone from: devices must
// not be told of that again.
bool Revoker::is_taken_again(const MappingChange& gone) const {
  return std::ranges::any_of(told_, [&gone](const MappingChange& change) {
    return change.kind == MemoryChangeKind::kMoved &&
           change.moved_to < gone.va + gone.length_bytes &&
           gone.va < change.moved_to + change.length_bytes;
  });
}

void Revoker::tell_devices(Round round) {
  const std::lock_guard no_detach(users_mutex_);
  {
    const std::lock_guard lock(mutex_);
    told_users_ = users_;
  }
  for (const MappingChange& change : told_) {
    if (round == Round::kAgain && change.kind == MemoryChangeKind::kGone && is_taken_again(change))
      continue;
    for (RegionUser* user : told_users_) user->follow_memory(change);
  }
}

void Revoker::memory_filled() {
  filled_.store(true, std::memory_order_release);
  work_.fetch_add(1, std::memory_order_release);
  futex_wake(work_);
}

void Revoker::tell_filled() {
  const std::lock_guard no_detach(users_mutex_);
  {
    const std::lock_guard lock(mutex_);
    told_users_ = users_;
  }
  for (RegionUser* user : told_users_) user->memory_filled();
}

// Waits for registrations on their way; returns false if there are none.
bool Revoker::wait_for_registrations() {
  for (bool any = false;; any = true) {
    const uint32_t seen = finished_.load(std::memory_order_acquire);
    {
      const std::lock_guard lock(mutex_);
      if (registrations_ == 0) return any;
    }
    futex_wait(finished_, seen);
  }
}

// Whether all reports have ended that come before what is `behind` them. They are in order.
bool Revoker::is_due(uint64_t behind) const {
  return reports_.empty() || behind < reports_.front();
}

bool Revoker::take_ended_changes() {
  const std::lock_guard lock(mutex_);
  told_.clear();
  told_changes_.clear();
  // In the order in which they have ended, but for those that have to be told behind reports.
  for (size_t i = 0; i < ended_changes_.size(); i++) {
    ended_changes_[i].place = i;
    if (!ended_changes_[i].is_report) continue;
    for (size_t j = 0; j < i; j++)
      if (ended_changes_[j].behind >= ended_changes_[i].number) ended_changes_[j].place = i;
  }
  std::ranges::sort(ended_changes_, {}, [](const Ended& ended) {
    return std::tuple(ended.place, !ended.is_report, ended.number);
  });
  for (const Ended& ended : ended_changes_) {
    if (!is_due(ended.behind)) continue;
    told_changes_.push_back(ended.number);
    for (const Part& part : parts_)
      if (part.number == ended.number) told_.push_back(part.change);
  }
  std::erase_if(ended_changes_, [this](const Ended& ended) { return is_due(ended.behind); });
  std::erase_if(parts_, [this](const Part& part) {
    return std::ranges::find(told_changes_, part.number) != told_changes_.end();
  });
  return !told_changes_.empty();
}

void Revoker::run() {
  for (;;) {
    const uint32_t seen = work_.load(std::memory_order_acquire);
    if (filled_.exchange(false, std::memory_order_acquire)) tell_filled();
    if (!take_ended_changes()) {
      futex_wait(work_, seen);
      continue;
    }
    tell_devices(Round::kFirst);
    {
      const std::lock_guard lock(mutex_);
      closers_ -= static_cast<uint32_t>(told_changes_.size());
      for (const uint64_t change : told_changes_) std::erase(untold_, change);
      open_gates_if_done();
    }
    for (const MappingChange& change : told_)
      if (!change.noted) follow_(change);
    {
      const std::lock_guard lock(mutex_);
      const size_t known = std::erase_if(unknown_, [this](uint64_t report) {
        return std::ranges::find(told_changes_, report) != told_changes_.end();
      });
      unknown_reports.fetch_sub(static_cast<uint32_t>(known));
    }
    // A registration that looked at the address space before the change may have reached hostnicd
    // after the revocation did.
    if (!told_.empty() && wait_for_registrations()) tell_devices(Round::kAgain);
    {
      const std::lock_guard lock(mutex_);
      for (const uint64_t change : told_changes_) std::erase(changes_, change);
      done_.fetch_add(1, std::memory_order_release);
      futex_wake(done_);
    }
  }
}

}  // namespace hostnic::memory
