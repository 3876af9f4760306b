// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cerrno>

#include "verbs-shim/elf/stat_calls.h"
#include "verbs-shim/elf/symbols.h"

namespace hostnic::elf {

// Finds what a hook of ours goes on to: the next definition behind this library, libc's or that of
// another preloaded library. `known` keeps it. It is found at first use, without a lock: that may
// be in a signal handler. For any thread; errno stays as it is. Returns null if nobody has it.
template <typename Function>
Function* next_function(std::atomic<Function*>& known, const char* name) {
  Function* next = known.load(std::memory_order_relaxed);
  if (next != nullptr) return next;
  using Dlsym = void* (*)(void*, const char*);
  const int saved_errno = errno;
  const auto real_dlsym = reinterpret_cast<Dlsym>(libc_symbol("dlsym"));
  next = reinterpret_cast<Function*>(real_dlsym(RTLD_NEXT, name));
  if (next == nullptr) next = reinterpret_cast<Function*>(libc_symbol(name));
  if (next == nullptr) next = reinterpret_cast<Function*>(stat_call(name));
  known.store(next, std::memory_order_relaxed);
  errno = saved_errno;
  return next;
}

}  // namespace hostnic::elf
