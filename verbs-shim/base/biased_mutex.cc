// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/base/biased_mutex.h"

#include <sched.h>

#include "protocol/hostif/shared_fence.h"
#include "verbs-shim/base/clock.h"

namespace hostnic {
namespace {

constexpr uint32_t kYieldsBeforePause = 64;
constexpr uint32_t kPauseNs = 20'000;
constexpr uint32_t kUnfencedNs = 10'000'000;

// ThreadSanitizer knows nothing of shared fences.
#if defined(__SANITIZE_THREAD__)
bool can_favour() { return false; }
#else
bool can_favour() { return takes_shared_fences(); }
#endif

}  // namespace

// Takes the right from the favourite; mutex_ must be locked. Returns whether the former favourite
// is out: no other thread becomes one meanwhile, but that one may still be inside.
bool BiasedMutex::favourite_is_out() {
  if (favourite_.load(std::memory_order_relaxed) != nullptr) {
    favourite_.store(nullptr, std::memory_order_relaxed);
    // The pause replaces the fence where a filter has come in between: no store waits that long for
    // its cache line.
    if (!fence_own_threads()) pause_for(kUnfencedNs);
  }
  return favourite_inside_.load(std::memory_order_acquire) == 0;
}

void BiasedMutex::note_taken() {
  by_favourite_ = false;
  const Thread self = current();
  times_ = last_ == self ? times_ + 1 : 1;
  last_ = self;
}

void BiasedMutex::lock_for_all() {
  mutex_.lock();
  for (uint32_t looks = 1; !favourite_is_out(); ++looks) {
    if (looks % kYieldsBeforePause != 0) {
      sched_yield();
    } else {
      pause_for(kPauseNs);
    }
  }
  note_taken();
}

bool BiasedMutex::try_lock_for_all() {
  if (!mutex_.try_lock()) return false;
  if (!favourite_is_out()) {
    mutex_.unlock();
    return false;
  }
  note_taken();
  return true;
}

void BiasedMutex::unlock_for_all() {
  if (times_ >= kTimesToFavour && can_favour()) {
    times_ = 0;
    favourite_.store(current(), std::memory_order_release);
  }
  mutex_.unlock();
}

}  // namespace hostnic
