#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cerrno>

#include "verbs-shim/elf/symbols.h"

namespace hostnic::elf {

// What a hook of ours goes on to: the next definition behind this library, libc's or that of
// another preloaded library. `known` keeps it. Found at first use, without a lock: that may be in a
// signal handler. Any thread; errno stays as it is. Null: nobody has it.
template <typename Result, typename... Parameters>
auto next_function(std::atomic<Result (*)(Parameters...)>& known, const char* name) {
  Result (*next)(Parameters...) = known.load(std::memory_order_relaxed);
  if (next != nullptr) return next;
  using Dlsym = void* (*)(void*, const char*);
  const int saved_errno = errno;
  const auto real_dlsym = reinterpret_cast<Dlsym>(libc_symbol("dlsym"));
  next = reinterpret_cast<Result (*)(Parameters...)>(real_dlsym(RTLD_NEXT, name));
  if (next == nullptr) next = reinterpret_cast<Result (*)(Parameters...)>(libc_symbol(name));
  known.store(next, std::memory_order_relaxed);
  errno = saved_errno;
  return next;
}

}  // namespace hostnic::elf
