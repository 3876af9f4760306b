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
  explicit Critical(RegistrarState& state) : mutex_(state.mutex) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &signals_);
    mutex_.lock();
  }
  ~Critical() {
    mutex_.unlock();
    pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
  }
  Critical(const Critical&) = delete;
  Critical& operator=(const Critical&) = delete;

 private:
  CancellationOff cancellation_off_;
  std::mutex& mutex_;
  sigset_t signals_;
};

}  // namespace hostnic::memory
