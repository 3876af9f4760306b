// SPDX-License-Identifier: BSD-3-Clause
// The registrar's critical section. Signals wait: a handler on this thread might touch a page that
// is being moved, or call munmap, which takes the same mutex. Cancellation waits as well: munmap
// and its kind are no cancellation points, and what they do here opens and reads files.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <mutex>

#include "verbs-shim/base/cancellation.h"
#include "verbs-shim/memory/registrar_state.h"

namespace hostnic::memory {

class Critical {
 public:
  explicit Critical(RegistrarState& state) : Critical(state.mutex, std::defer_lock) {
    lock_.lock();
  }
  // Does not wait: whether it is one owns() says.
  Critical(RegistrarState& state, std::try_to_lock_t /*unused*/)
      : Critical(state.mutex, std::defer_lock) {
    (void)lock_.try_lock();
  }
  ~Critical() {
    if (owns()) lock_.unlock();
    pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
  }
  Critical(const Critical&) = delete;
  Critical& operator=(const Critical&) = delete;
  bool owns() const { return lock_.owns_lock(); }

 private:
  Critical(std::mutex& mutex, std::defer_lock_t /*unused*/) : lock_(mutex, std::defer_lock) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &signals_);
  }

  CancellationOff cancellation_off_;
  std::unique_lock<std::mutex> lock_;
  sigset_t signals_;
};

}  // namespace hostnic::memory
