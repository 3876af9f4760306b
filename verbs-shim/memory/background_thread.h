// SPDX-License-Identifier: BSD-3-Clause
// Threads of the memory registrar's own.
#pragma once

#include <time.h>

#include <cstdint>

namespace hostnic::memory {

// Starts a detached thread that gets no signals and has a small stack. The registrar knows it as
// one of ours when this returns, so that a process without other threads still counts as alone.
// Must not be called in the registrar's critical section. Returns 0 or an errno value.
int start_background_thread(const char* name, void (*run)(void*), void* argument);

// Less than a second.
inline void sleep_ns(int64_t ns) {
  const timespec pause{0, ns};
  nanosleep(&pause, nullptr);
}

}  // namespace hostnic::memory
