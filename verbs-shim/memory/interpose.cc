// SPDX-License-Identifier: BSD-3-Clause
// The C library's calls that take memory away, so that migrated pages of it are forgotten. Best
// effort: calls within the C library itself (free, brk) and raw system calls do not come here.
//
// Nothing may allocate or take a lock unless migrated pages are concerned: these functions run
// before constructors, inside allocators, and in signal handlers.

// With 64-bit file offsets by macro, the headers would rename mmap to mmap64 and both definitions
// below would be one symbol.
#undef _FILE_OFFSET_BITS
#include <stdarg.h>
#include <stdlib.h>

#include "verbs-shim/elf/next_function.h"
#include "verbs-shim/memory/libc_calls.h"
#include "verbs-shim/memory/memory_registrar.h"

using hostnic::memory::MemoryRegistrar;
using namespace hostnic::memory;
namespace elf = hostnic::elf;

namespace {

using Realloc = void*(void*, size_t);
constinit std::atomic<Realloc*> next_realloc{nullptr};
using Fork = pid_t();
constinit std::atomic<Fork*> next_fork{nullptr};

// The bytes of a block that glibc's malloc made a mapping of its own for; 0 if it is no such block,
// or if another allocator is in charge. Such a block's size, with flags in the lowest bits, lies
// before it.
size_t bytes_of_mapping(void* block, Realloc* next) {
  constexpr size_t kIsMapped = 2, kFlags = 7, kHeader = 2 * sizeof(size_t);
  // No guarded static: a thread that waited for one might hold the dynamic linker's lock.
  static constinit std::atomic<int> glibc{-1};
  if (glibc.load(std::memory_order_relaxed) < 0)
    glibc.store(elf::libc_symbol("realloc") == reinterpret_cast<void*>(next) &&
                elf::libc_symbol("gnu_get_libc_version") != nullptr);
  if (glibc.load(std::memory_order_relaxed) == 0) return 0;
  const size_t size = static_cast<const size_t*>(block)[-1];
  if ((size & kIsMapped) == 0 || (size & ~kFlags) <= kHeader) return 0;
  return (size & ~kFlags) - kHeader;
}

}  // namespace

#define HOSTNIC_INTERPOSED extern "C" __attribute__((visibility("default")))

HOSTNIC_INTERPOSED int munmap(void* at, size_t length) noexcept {
  if (!MemoryRegistrar::concerns(address(at), length)) return libc_munmap(at, length);
  return MemoryRegistrar::process().system_calls().munmap(at, length);
}

HOSTNIC_INTERPOSED void* mmap(void* at, size_t length, int prot, int flags, int fd,
                              off_t offset) noexcept {
  if ((flags & MAP_FIXED) == 0 || !MemoryRegistrar::concerns(address(at), length))
    return libc_mmap(at, length, prot, flags, fd, offset);
  return MemoryRegistrar::process().system_calls().mmap_fixed(at, length, prot, flags, fd, offset);
}

HOSTNIC_INTERPOSED void* mmap64(void* at, size_t length, int prot, int flags, int fd,
                                off64_t offset) noexcept {
  return mmap(at, length, prot, flags, fd, offset);
}

HOSTNIC_INTERPOSED int madvise(void* at, size_t length, int advice) noexcept {
  if (!MemoryRegistrar::concerns(address(at), length)) return libc_madvise(at, length, advice);
  return MemoryRegistrar::process().system_calls().madvise(at, length, advice);
}

HOSTNIC_INTERPOSED void* mremap(void* from, size_t old_length, size_t length, int flags,
                                ...) noexcept {
  void* to = nullptr;
  if ((flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) != 0) {
    va_list arguments;
    va_start(arguments, flags);
    to = va_arg(arguments, void*);
    va_end(arguments);
  }
  if (!MemoryRegistrar::concerns(address(from), old_length) &&
      ((flags & MREMAP_FIXED) == 0 || !MemoryRegistrar::concerns(address(to), length)))
    return libc_mremap(from, old_length, length, flags, to);
  return MemoryRegistrar::process().system_calls().mremap(from, old_length, length, flags, to);
}

// A block with a mapping of its own is moved by glibc with a bare mremap, of which nothing may be
// missing.
HOSTNIC_INTERPOSED void* realloc(void* block, size_t length) noexcept {
  Realloc* const next = hostnic::elf::next_function(next_realloc, "realloc");
  if (block == nullptr ||
      !MemoryRegistrar::concerns(address(block) & ~(kPageBytes - 1), SIZE_MAX / 2))
    return next(block, length);
  const size_t bytes = bytes_of_mapping(block, next);
  if (bytes == 0 || length <= bytes || !MemoryRegistrar::concerns(address(block), bytes))
    return next(block, length);
  return MemoryRegistrar::process().system_calls().realloc_mapping(block, bytes, length, next);
}

HOSTNIC_INTERPOSED void* reallocarray(void* block, size_t count, size_t each) noexcept {
  size_t length = 0;
  if (__builtin_mul_overflow(count, each, &length)) {
    errno = ENOMEM;
    return nullptr;
  }
  return realloc(block, length);
}

// fork without handlers (pthread_atfork), ours included.
HOSTNIC_INTERPOSED pid_t _Fork() noexcept {
  Fork* const next = elf::next_function(next_fork, "_Fork");
  if (next == nullptr) {  // before glibc 2.34
    errno = ENOSYS;
    return -1;
  }
  return MemoryRegistrar::fork_without_handlers(next);
}
