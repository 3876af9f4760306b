// SPDX-License-Identifier: BSD-3-Clause
// A lock that is held for a moment, whose waiters give up their core. A forked child resets it.
#pragma once

#include <sched.h>

#include <atomic>

namespace hostnic::check {

class SpinLock {
 public:
  void lock() {
    while (locked_.test_and_set(std::memory_order_acquire)) sched_yield();
  }
  void unlock() { locked_.clear(std::memory_order_release); }
  // Of a child whose other threads are no more.
  void reset() { locked_.clear(); }

 private:
  std::atomic_flag locked_ = ATOMIC_FLAG_INIT;
};

class SpinGuard {
 public:
  explicit SpinGuard(SpinLock& lock) : lock_(lock) { lock_.lock(); }
  ~SpinGuard() { lock_.unlock(); }
  SpinGuard(const SpinGuard&) = delete;
  SpinGuard& operator=(const SpinGuard&) = delete;

 private:
  SpinLock& lock_;
};

}  // namespace hostnic::check
