// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/libc_calls.h"

#include <stdarg.h>

#include <atomic>

#include "verbs-shim/elf/symbols.h"
#include "verbs-shim/memory/raw_memory.h"

namespace hostnic::memory {
namespace {

// Finds a function without a guarded static: a thread that waited for one might hold the dynamic
// linker's lock.
template <typename Function>
Function* resolved(std::atomic<Function*>& known, const char* name, Function* instead) {
  Function* function = known.load(std::memory_order_relaxed);
  if (function == nullptr) {
    function = reinterpret_cast<Function*>(elf::libc_symbol(name));
    if (function == nullptr) function = instead;
    known.store(function, std::memory_order_relaxed);
  }
  return function;
}

using Munmap = int(void*, size_t);
using Mmap = void*(void*, size_t, int, int, int, off_t);
using Madvise = int(void*, size_t, int);
using Mremap = void*(void*, size_t, size_t, int, ...);

constinit std::atomic<Munmap*> munmap_of_libc{nullptr};
constinit std::atomic<Mmap*> mmap_of_libc{nullptr};
constinit std::atomic<Madvise*> madvise_of_libc{nullptr};
constinit std::atomic<Mremap*> mremap_of_libc{nullptr};

void* raw_mremap_variadic(void* from, size_t old_length, size_t length, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  void* to = va_arg(arguments, void*);
  va_end(arguments);
  return raw_mremap(from, old_length, length, flags, to);
}

}  // namespace

int libc_munmap(void* at, size_t length) {
  return resolved(munmap_of_libc, "munmap", &raw_munmap)(at, length);
}

void* libc_mmap(void* at, size_t length, int prot, int flags, int fd, off_t offset) {
  return resolved(mmap_of_libc, "mmap", &raw_mmap)(at, length, prot, flags, fd, offset);
}

int libc_madvise(void* at, size_t length, int advice) {
  return resolved(madvise_of_libc, "madvise", &raw_madvise)(at, length, advice);
}

void* libc_mremap(void* from, size_t old_length, size_t length, int flags, void* to) {
  return resolved(mremap_of_libc, "mremap", &raw_mremap_variadic)(from, old_length, length, flags,
                                                                  to);
}

}  // namespace hostnic::memory
