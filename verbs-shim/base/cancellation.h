// SPDX-License-Identifier: BSD-3-Clause
// Keeps pthread_cancel() away from code of this library. On an adapter no verb but the two that
// wait for events is a cancellation point, and here a cancelled thread would leave locks taken and
// the conversation with hostnicd cut in half.
#pragma once

#include <pthread.h>

namespace hostnic {

// While a CancellationOff lives the calling thread is not cancelled; a request that comes meanwhile
// waits. Entry points hold one. Posting and polling do without one: what reaches a cancellation
// point in there (a doorbell, an event, a pause, a line of the log) has its own.
class CancellationOff {
 public:
  CancellationOff() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~CancellationOff() { pthread_setcancelstate(before_, nullptr); }
  CancellationOff(const CancellationOff&) = delete;
  CancellationOff& operator=(const CancellationOff&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

// Ends a thread that was asked to end and does nothing but create objects, without a cancellation
// point of its own: it ends within so many verbs. Called at the start of entry points that create,
// with nothing begun, and only in frames that have nothing to clean up: this library's unwinder is
// not the program's.
inline void cancel_if_overdue() {
  constexpr unsigned kVerbsWithoutPoint = 64;
  static thread_local unsigned verbs = 0;
  if (++verbs % kVerbsWithoutPoint == 0) pthread_testcancel();
}

}  // namespace hostnic
