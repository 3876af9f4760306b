// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/revoker.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "verbs-shim/memory/background_thread.h"

namespace hostnic::memory {
namespace {

// A transfer that takes longer than this waits for something else than memory, and nobody may wait
// for that.
constexpr uint64_t kLongestTransferNs = 1'000'000'000;
constexpr unsigned kSpins = 1000;
// The capacity that is reserved; with more ranges or devices vectors grow.
constexpr size_t kRangesAtOnce = 1024, kDevices = 512;

// The number of changes that this thread has begun and not ended.
thread_local unsigned own_changes = 0;

void futex_wait(std::atomic<uint32_t>& word, uint32_t value) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
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
    const timespec pause{0, 20'000};
    nanosleep(&pause, nullptr);
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

int Revoker::start(Forget forget) {
  if (runs()) return 0;
  forget_ = forget;
  {
    const Quiet quiet(mutex_);
    for (RawVector<LostRange>* ranges : {&lost_, &told_}) ranges->reserve(kRangesAtOnce);
    for (RawVector<uint64_t>* changes : {&changes_, &ended_changes_, &told_changes_})
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
}

uint64_t Revoker::begin_change() {
  const std::lock_guard lock(mutex_);
  changes_.push_back(++last_change_);
  if (closers_++ == 0) close_gates();
  own_changes++;
  return last_change_;
}

void Revoker::end_change(uint64_t change, const LostRange* ranges, size_t count) {
  const std::lock_guard lock(mutex_);
  lost_.insert(lost_.end(), ranges, ranges + count);
  ended_changes_.push_back(change);
  own_changes--;
  work_.fetch_add(1, std::memory_order_release);
  futex_wake(work_);
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

void Revoker::tell_devices() {
  const std::lock_guard no_detach(users_mutex_);
  {
    const std::lock_guard lock(mutex_);
    told_users_ = users_;
  }
  for (const LostRange& range : told_)
    for (RegionUser* user : told_users_) user->revoke_memory(range.start, range.end - range.start);
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

bool Revoker::take_ended_changes() {
  const std::lock_guard lock(mutex_);
  told_.clear();
  told_.swap(lost_);
  told_changes_.clear();
  told_changes_.swap(ended_changes_);
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
    tell_devices();
    {
      const std::lock_guard lock(mutex_);
      closers_ -= static_cast<uint32_t>(told_changes_.size());
      open_gates_if_done();
    }
    for (const LostRange& range : told_) forget_(range);
    // A registration that looked at the address space before the change may have reached hostnicd
    // after the revocation did.
    if (!told_.empty() && wait_for_registrations()) tell_devices();
    {
      const std::lock_guard lock(mutex_);
      for (const uint64_t change : told_changes_) std::erase(changes_, change);
      done_.fetch_add(1, std::memory_order_release);
      futex_wake(done_);
    }
  }
}

}  // namespace hostnic::memory
