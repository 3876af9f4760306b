// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/calls/next.h"

#include <dlfcn.h>

#include "verbs-shim/elf/symbols.h"

namespace hostnic::calls {

void* find_next(const char* name) {
  const int saved_errno = errno;
  // This is libc's dlsym, because our own hook would answer with ourselves.
  using Dlsym = void* (*)(void*, const char*);
  const auto real_dlsym = reinterpret_cast<Dlsym>(elf::libc_symbol("dlsym"));
  void* next = nullptr;
  if (real_dlsym != nullptr) next = real_dlsym(RTLD_NEXT, name);
  if (next == nullptr && real_dlsym != nullptr) {
    const char* file = elf::starts_with(name, "rdma_") ? "librdmacm.so.1" : "libibverbs.so.1";
    // It is kept for ever, because contexts live in it.
    if (void* library = dlopen(file, RTLD_LAZY | RTLD_LOCAL)) next = real_dlsym(library, name);
  }
  errno = saved_errno;
  return next;
}

}  // namespace hostnic::calls
