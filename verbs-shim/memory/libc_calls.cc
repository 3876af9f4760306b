// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/libc_calls.h"

#include <stdarg.h>

#include <atomic>
#include <cerrno>

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
using Shmat = void*(int, const void*, int);
using Shmdt = int(const void*);
using Brk = int(void*);
using Sbrk = void*(intptr_t);
using RegisterAtfork = int(void (*)(), void (*)(), void (*)(), void*);

constinit std::atomic<Munmap*> munmap_of_libc{nullptr};
constinit std::atomic<Mmap*> mmap_of_libc{nullptr};
constinit std::atomic<Madvise*> madvise_of_libc{nullptr};
constinit std::atomic<Mremap*> mremap_of_libc{nullptr};
constinit std::atomic<Shmat*> shmat_of_libc{nullptr};
constinit std::atomic<Shmdt*> shmdt_of_libc{nullptr};
constinit std::atomic<Brk*> brk_of_libc{nullptr};
constinit std::atomic<Sbrk*> sbrk_of_libc{nullptr};
constinit std::atomic<RegisterAtfork*> register_atfork_of_libc{nullptr};

void* raw_mremap_variadic(void* from, size_t old_length, size_t length, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  void* to = va_arg(arguments, void*);
  va_end(arguments);
  return raw_mremap(from, old_length, length, flags, to);
}

void* raw_shmat(int id, const void* at, int flags) {
  return reinterpret_cast<void*>(syscall(SYS_shmat, id, at, flags));
}
int raw_shmdt(const void* at) { return static_cast<int>(syscall(SYS_shmdt, at)); }
int no_brk(void*) {
  errno = ENOMEM;
  return -1;
}
void* no_sbrk(intptr_t) {
  errno = ENOMEM;
  return MAP_FAILED;
}
int no_register_atfork(void (*)(), void (*)(), void (*)(), void*) { return ENOMEM; }

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

void* libc_shmat(int id, const void* at, int flags) {
  return resolved(shmat_of_libc, "shmat", &raw_shmat)(id, at, flags);
}

int libc_shmdt(const void* at) { return resolved(shmdt_of_libc, "shmdt", &raw_shmdt)(at); }

int libc_brk(void* end) { return resolved(brk_of_libc, "brk", &no_brk)(end); }

void* libc_sbrk(intptr_t increment) { return resolved(sbrk_of_libc, "sbrk", &no_sbrk)(increment); }

int libc_register_atfork(void (*before)(), void (*in_parent)(), void (*in_child)(), void* library) {
  return resolved(register_atfork_of_libc, "__register_atfork", &no_register_atfork)(
      before, in_parent, in_child, library);
}

}  // namespace hostnic::memory
