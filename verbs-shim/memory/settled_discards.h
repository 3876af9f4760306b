// SPDX-License-Identifier: BSD-3-Clause
// Discards whose threads have made the pages zeros themselves, before the kernel's call: a thread
// that reads events and sees such a call has nothing left to do. Zeros are written once, then, and
// not twice. Any thread; nothing waits.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "verbs-shim/memory/blocked_calls.h"

namespace hostnic::memory {

class SettledDiscards {
  struct Entry {
    std::atomic<pid_t> thread{0};  // 0: free
    std::atomic<uint64_t> start{0}, end{0};
    std::atomic<bool> of_locked{false};
  };

 public:
  static constexpr size_t kMost = 16;  // at a time; others are settled twice

  // Held by the thread that discards, until its call has returned.
  class Mark {
   public:
    Mark() = default;
    Mark(const Mark&) = delete;
    Mark& operator=(const Mark&) = delete;
    ~Mark() {
      if (entry_ != nullptr) entry_->thread.store(0, std::memory_order_release);
    }

   private:
    friend class SettledDiscards;
    Entry* entry_ = nullptr;
  };

  // Called once for each mark, by the thread that discards.
  void note(pid_t thread, const Discard& discard, Mark& mark);
  // Whether the call that a thread waits in was noted.
  bool has(pid_t thread, const Discard& discard) const;
  // Called in a forked child, whose parent's threads are not there.
  void forget();

 private:
  std::array<Entry, kMost> entries_;
};

}  // namespace hostnic::memory
