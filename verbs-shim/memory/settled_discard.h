// SPDX-License-Identifier: BSD-3-Clause
// A discard whose pages its own thread has made zeros already: who reads the event of it need not
// do so again, which takes as long as all that is discarded takes to write. Of several threads that
// discard at the same time one has the place, the others' pages are made zeros twice.
#pragma once

#include <sys/syscall.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "verbs-shim/memory/blocked_calls.h"

namespace hostnic::memory {

class SettledDiscard {
 public:
  // Called by the thread that is about to discard, with how many migrations had begun before it
  // made zeros, at a moment when nothing of the range was aside. Returns false if another thread
  // has the place; else forget() has to follow the call.
  bool note(pid_t thread, const Discard& discard, uint64_t migrations) {
    pid_t free = 0;
    if (!thread_.compare_exchange_strong(free, kTaken)) return false;
    discard_ = discard;
    migrations_ = migrations;
    thread_.store(thread, std::memory_order_release);
    return true;
  }
  void forget() { thread_.store(0, std::memory_order_release); }

  // Whether a call is the one that was noted, and no page can have come to the range since. The
  // thread waits in the call, so the place is its own until its event has been read.
  bool covers(const BlockedCall& call, const Discard& discard, uint64_t migrations) const {
    return thread_.load(std::memory_order_acquire) == call.thread && call.number == SYS_madvise &&
           discard.start == discard_.start && discard.end == discard_.end &&
           discard.of_locked == discard_.of_locked && migrations == migrations_;
  }

 private:
  static constexpr pid_t kTaken = -1;

  std::atomic<pid_t> thread_{0};  // 0: the place is free
  Discard discard_;
  uint64_t migrations_ = 0;
};

}  // namespace hostnic::memory
