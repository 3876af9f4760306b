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

#include "verbs-shim/memory/libc_calls.h"
#include "verbs-shim/memory/memory_registrar.h"

using hostnic::memory::MemoryRegistrar;
using namespace hostnic::memory;

#define HOSTNIC_INTERPOSED extern "C" __attribute__((visibility("default")))

HOSTNIC_INTERPOSED int munmap(void* at, size_t length) noexcept {
  if (!MemoryRegistrar::concerns(address(at), length)) return libc_munmap(at, length);
  return MemoryRegistrar::process().munmap(at, length);
}

HOSTNIC_INTERPOSED void* mmap(void* at, size_t length, int prot, int flags, int fd,
                              off_t offset) noexcept {
  if ((flags & MAP_FIXED) == 0 || !MemoryRegistrar::concerns(address(at), length))
    return libc_mmap(at, length, prot, flags, fd, offset);
  return MemoryRegistrar::process().mmap_fixed(at, length, prot, flags, fd, offset);
}

HOSTNIC_INTERPOSED void* mmap64(void* at, size_t length, int prot, int flags, int fd,
                                off64_t offset) noexcept {
  return mmap(at, length, prot, flags, fd, offset);
}

HOSTNIC_INTERPOSED int madvise(void* at, size_t length, int advice) noexcept {
  if (!MemoryRegistrar::concerns(address(at), length)) return libc_madvise(at, length, advice);
  return MemoryRegistrar::process().madvise(at, length, advice);
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
  return MemoryRegistrar::process().mremap(from, old_length, length, flags, to);
}
