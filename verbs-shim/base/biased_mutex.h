// SPDX-License-Identifier: BSD-3-Clause
// A mutex that one thread takes nearly always. Verbs calls are made by one thread as a rule, and
// take locks for each message: a locked instruction each, which waits for every store before it,
// with thousands of queue pairs all of them cache misses. So a thread that has taken the mutex many
// times in a row gets it by plain stores from then on; another one that wants it takes that right
// back with a shared fence first (shared_fence.h).
//
// Lockable (std::lock_guard, std::unique_lock). Any thread; not recursive. Held over a fork it is
// as useless in the child as a std::mutex.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace hostnic {

class BiasedMutex {
 public:
  BiasedMutex() = default;
  BiasedMutex(const BiasedMutex&) = delete;
  BiasedMutex& operator=(const BiasedMutex&) = delete;

  void lock() {
    if (!enter_as_favourite()) lock_for_all();
  }
  bool try_lock() { return enter_as_favourite() || try_lock_for_all(); }
  void unlock() {
    if (by_favourite_) {
      favourite_inside_.store(0, std::memory_order_release);
    } else {
      unlock_for_all();
    }
  }

  // A thread becomes the favourite when it has taken the mutex so many times in a row: rare enough
  // for taking the right back (some hundred ns) not to matter.
  static constexpr uint32_t kTimesToFavour = 256;

 private:
  using Thread = const void*;
  // The name is distinct among living threads; a new thread that finds itself the favourite by a
  // dead one's name was started after that one's end.
  static Thread current() { return __builtin_thread_pointer(); }

  bool enter_as_favourite() {
    const Thread self = current();
    if (favourite_.load(std::memory_order_relaxed) != self) return false;
    // A signal handler in the midst of the favourite's section gets what it would get of a
    // std::mutex.
    if (favourite_inside_.load(std::memory_order_relaxed) != 0) return false;
    favourite_inside_.store(1, std::memory_order_relaxed);
    // Whoever takes the right back stores, fences both, and looks.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (favourite_.load(std::memory_order_acquire) != self) {
      favourite_inside_.store(0, std::memory_order_release);
      return false;
    }
    by_favourite_ = true;
    return true;
  }
  void lock_for_all();
  bool try_lock_for_all();
  void unlock_for_all();
  bool favourite_is_out();
  void note_taken();

  std::atomic<Thread> favourite_{nullptr};  // written with mutex_ locked
  std::atomic<uint32_t> favourite_inside_{0};
  bool by_favourite_ = false;  // how the mutex was taken; belongs to whoever has it
  Thread last_ = nullptr;  // written with mutex_ locked: who took the mutex, and how often in turn
  uint32_t times_ = 0;
  std::mutex mutex_;
};

}  // namespace hostnic
