// SPDX-License-Identifier: BSD-3-Clause
// A thread of the library's own in a program that knows nothing of it.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace hostnic::faults {

// Starts a thread that takes no signals: they are the program's threads' business. False: there is
// no room for one.
inline bool start_quiet_thread(pthread_t& thread, void* (*run)(void*), void* argument) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const bool runs = pthread_create(&thread, nullptr, run, argument) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return runs;
}

}  // namespace hostnic::faults
