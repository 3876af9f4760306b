// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/background_thread.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "verbs-shim/memory/memory_registrar.h"

namespace hostnic::memory {
namespace {

constexpr size_t kStackBytes = 512 * 1024;

struct Start {
  void (*run)(void*);
  void* argument;
  std::atomic<uint32_t> known{0};  // futex word
};

void* run_thread(void* at) {
  auto* start = static_cast<Start*>(at);
  void (*run)(void*) = start->run;
  void* argument = start->argument;
  MemoryRegistrar::process().own_thread_starts();
  // The waiting thread may be gone at once, and its stack with the word; waking needs the address
  // only.
  start->known.store(1, std::memory_order_release);
  syscall(SYS_futex, &start->known, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  run(argument);
  MemoryRegistrar::process().own_thread_ends();
  return nullptr;
}

}  // namespace

int start_background_thread(const char* name, void (*run)(void*), void* argument) {
  Start start{run, argument};
  pthread_attr_t attributes;
  if (const int error = pthread_attr_init(&attributes); error != 0) return error;
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread{};
  const int error = pthread_create(&thread, &attributes, run_thread, &start);
  if (error == 0) {
    pthread_setname_np(thread, name);
    while (start.known.load(std::memory_order_acquire) == 0)
      syscall(SYS_futex, &start.known, FUTEX_WAIT_PRIVATE, 0, nullptr, nullptr, 0);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return error;
}

}  // namespace hostnic::memory
