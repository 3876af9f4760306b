// SPDX-License-Identifier: BSD-3-Clause
// The C library's calls that take memory away, so that migrated pages of it are forgotten. Best
// effort: calls within the C library itself (brk, its heap's munmap) and raw system calls do not
// come here, but for what free and realloc unmap; the kernel tells of them (mapping_watch.h), or
// malloc's functions are asked.
//
// Nothing may allocate or take a lock unless migrated pages are concerned: these functions run
// before constructors, inside allocators, and in signal handlers.

// With 64-bit file offsets by macro, the headers would rename mmap to mmap64 and both definitions
// below would be one symbol.
#undef _FILE_OFFSET_BITS
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/shm.h>
#include <unistd.h>

#include "verbs-shim/elf/next_function.h"
#include "verbs-shim/memory/fork_handlers.h"
#include "verbs-shim/memory/libc_calls.h"
#include "verbs-shim/memory/memory_registrar.h"

using hostnic::memory::MemoryRegistrar;
using namespace hostnic::memory;
namespace elf = hostnic::elf;

namespace {

using Realloc = void*(void*, size_t);
constinit std::atomic<Realloc*> next_realloc{nullptr};
using Free = void(void*);
constinit std::atomic<Free*> next_free{nullptr};
using Trim = int(size_t);
constinit std::atomic<Trim*> next_trim{nullptr};
using Fork = pid_t();
constinit std::atomic<Fork*> next_fork{nullptr};

// The free behind ours. To find it is to call dlsym, which frees what an earlier one has said in
// vain: that is a call of this thread's within this one, and is put off.
Free* free_behind_ours() {
  Free* next = next_free.load(std::memory_order_relaxed);
  if (next != nullptr) return next;
  static constinit std::atomic<pthread_t> finder{};
  static constinit std::atomic<void*> put_off{nullptr};
  if (finder.load() == pthread_self()) return [](void* block) { put_off.store(block); };
  finder.store(pthread_self());
  next = elf::next_function(next_free, "free");
  finder.store({});
  if (void* const block = put_off.exchange(nullptr); block != nullptr) next(block);
  return next;
}

// Whether glibc's malloc is in charge, and no other allocator.
bool malloc_is_of_glibc() {
  // No guarded static: a thread that waited for one might hold the dynamic linker's lock.
  static constinit std::atomic<int> known{-1};
  if (known.load(std::memory_order_relaxed) < 0) {
    Realloc* const next = elf::next_function(next_realloc, "realloc");
    known.store(elf::libc_symbol("realloc") == reinterpret_cast<void*>(next) &&
                elf::libc_symbol("gnu_get_libc_version") != nullptr);
  }
  return known.load(std::memory_order_relaxed) != 0;
}

// The bytes of a block that glibc's malloc made a mapping of its own for; 0 if it is no such block,
// or if another allocator is in charge. Such a block's size, with flags in the lowest bits, lies
// before it.
size_t bytes_of_mapping(void* block) {
  constexpr size_t kIsMapped = 2, kFlags = 7, kHeader = 2 * sizeof(size_t);
  if (!malloc_is_of_glibc()) return 0;
  const size_t size = static_cast<const size_t*>(block)[-1];
  if ((size & kIsMapped) == 0 || (size & ~kFlags) <= kHeader) return 0;
  return (size & ~kFlags) - kHeader;
}

// What the program unmaps or maps over is no guard any more.
void forget_guards(void* at, size_t length) {
  if (Guards::any())
    MemoryRegistrar::process().guards().forget(address(at), address(at) + page_up(length));
}

// Whether what libc unmaps by itself has to be looked for: nobody tells of it, and there is memory
// that a NIC may reach.
bool libc_goes_untold() {
  return MemoryRegistrar::concerns(0, SIZE_MAX) &&
         !MemoryRegistrar::process().system_calls().hears_of_libc();
}

// The end of the program's heap, if it may concern a NIC; else 0.
uint64_t end_of_heap() {
  if (!MemoryRegistrar::concerns(0, SIZE_MAX)) return 0;
  void* const now = libc_sbrk(0);
  return now == MAP_FAILED ? 0 : address(now);
}

// A call of libc's malloc that may take away the end of its heap. It is noticed right after it, so
// that a NIC may still write to a heap that other threads have let grow again meanwhile.
class HeapEnd {
 public:
  HeapEnd() : before_(libc_goes_untold() ? end_of_heap() : 0) {}
  ~HeapEnd() {
    if (before_ == 0) return;
    const uint64_t now = end_of_heap();
    if (now != 0 && now < before_)
      MemoryRegistrar::process().system_calls().note_unmapped(now, before_);
  }
  HeapEnd(const HeapEnd&) = delete;
  HeapEnd& operator=(const HeapEnd&) = delete;

 private:
  const uint64_t before_;
};

}  // namespace

#define HOSTNIC_INTERPOSED extern "C" __attribute__((visibility("default")))

// Handlers of others' come behind ours (fork_handlers.h).
HOSTNIC_INTERPOSED int __register_atfork(void (*before)(), void (*in_parent)(), void (*in_child)(),
                                         void* library) noexcept {
  hostnic::memory::register_fork_handlers();
  return libc_register_atfork(before, in_parent, in_child, library);
}

HOSTNIC_INTERPOSED int munmap(void* at, size_t length) noexcept {
  forget_guards(at, length);
  if (!MemoryRegistrar::concerns(address(at), length)) return libc_munmap(at, length);
  return MemoryRegistrar::process().system_calls().munmap(at, length);
}

HOSTNIC_INTERPOSED void* mmap(void* at, size_t length, int prot, int flags, int fd,
                              off_t offset) noexcept {
  if ((flags & MAP_FIXED_NOREPLACE) != 0) {
    void* const result = libc_mmap(at, length, prot, flags, fd, offset);
    if (result != MAP_FAILED || errno != EEXIST || !Guards::any()) return result;
    return MemoryRegistrar::process().guards().mmap(at, length, prot, flags, fd, offset);
  }
  if ((flags & MAP_FIXED) != 0) forget_guards(at, length);
  if ((flags & MAP_FIXED) == 0 || !MemoryRegistrar::concerns(address(at), length))
    return libc_mmap(at, length, prot, flags, fd, offset);
  return MemoryRegistrar::process().system_calls().mmap_fixed(at, length, prot, flags, fd, offset);
}

HOSTNIC_INTERPOSED void* mmap64(void* at, size_t length, int prot, int flags, int fd,
                                off64_t offset) noexcept {
  return mmap(at, length, prot, flags, fd, offset);
}

HOSTNIC_INTERPOSED int madvise(void* at, size_t length, int advice) noexcept {
  // What has moved or grown in the mirror is nothing in the table.
  const bool may_be_growth = (advice == MADV_FREE || advice == MADV_WIPEONFORK ||
                              advice == MADV_DONTFORK || advice == MADV_GUARD_INSTALL) &&
                             MemoryRegistrar::may_have_grown();
  if (!may_be_growth && !MemoryRegistrar::concerns(address(at), length))
    return libc_madvise(at, length, advice);
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
      ((flags & MREMAP_FIXED) == 0 || !MemoryRegistrar::concerns(address(to), length))) {
    void* const result = libc_mremap(from, old_length, length, flags, to);
    if (result == MAP_FAILED && errno == EFAULT && MemoryRegistrar::may_have_grown())
      return MemoryRegistrar::process().system_calls().move_divided(from, old_length, length, flags,
                                                                    to);
    if (result != MAP_FAILED || errno != ENOMEM || flags != 0 || !Guards::any()) return result;
    return MemoryRegistrar::process().system_calls().grow_in_place(from, old_length, length);
  }
  return MemoryRegistrar::process().system_calls().mremap(from, old_length, length, flags, to);
}

HOSTNIC_INTERPOSED void* shmat(int id, const void* at, int flags) noexcept {
  if ((flags & SHM_REMAP) == 0) {
    void* const result = libc_shmat(id, at, flags);
    if (result != MAP_FAILED || errno != EINVAL || at == nullptr || !Guards::any()) return result;
    return MemoryRegistrar::process().guards().shmat(id, const_cast<void*>(at), flags);
  }
  if (!MemoryRegistrar::concerns(address(at), SIZE_MAX / 2)) return libc_shmat(id, at, flags);
  return MemoryRegistrar::process().system_calls().shmat_over(id, const_cast<void*>(at), flags);
}

HOSTNIC_INTERPOSED int shmdt(const void* at) noexcept {
  if (!MemoryRegistrar::concerns(address(at), SIZE_MAX / 2)) return libc_shmdt(at);
  return MemoryRegistrar::process().system_calls().shmdt(at);
}

HOSTNIC_INTERPOSED int brk(void* end) noexcept {
  const uint64_t now = end_of_heap();
  if (address(end) >= now || !MemoryRegistrar::concerns(address(end), now - address(end)))
    return libc_brk(end);
  return MemoryRegistrar::process().system_calls().brk(end, now);
}

HOSTNIC_INTERPOSED void* sbrk(intptr_t increment) noexcept {
  const uint64_t now = increment < 0 ? end_of_heap() : 0;
  const uint64_t less = -static_cast<uint64_t>(increment);
  if (now == 0 || less > now || !MemoryRegistrar::concerns(now - less, less))
    return libc_sbrk(increment);
  return MemoryRegistrar::process().system_calls().sbrk(increment, now);
}

// A block with a mapping of its own is moved by glibc with a bare mremap, and made smaller by a
// bare munmap, of which nothing may be missing.
HOSTNIC_INTERPOSED void* realloc(void* block, size_t length) noexcept {
  Realloc* const next = elf::next_function(next_realloc, "realloc");
  if (block == nullptr ||
      !MemoryRegistrar::concerns(address(block) & ~(kPageBytes - 1), SIZE_MAX / 2))
    return next(block, length);
  const HeapEnd heap_end;
  const size_t bytes = bytes_of_mapping(block);
  if (bytes == 0 || !MemoryRegistrar::concerns(address(block), bytes)) return next(block, length);
  SystemCalls& calls = MemoryRegistrar::process().system_calls();
  if (length > bytes) return calls.realloc_mapping(block, bytes, length, next);
  return calls.release_mapping(block, bytes, length, next);
}

// A block with a mapping of its own is unmapped by a bare munmap, of which the kernel tells late,
// or not at all.
HOSTNIC_INTERPOSED void free(void* block) noexcept {
  Free* const next = free_behind_ours();
  if (block == nullptr ||
      !MemoryRegistrar::concerns(address(block) & ~(kPageBytes - 1), SIZE_MAX / 2))
    return next(block);
  const HeapEnd heap_end;
  const size_t bytes = bytes_of_mapping(block);
  if (bytes == 0 || !MemoryRegistrar::concerns(address(block), bytes)) return next(block);
  const auto release = [](void* freed, size_t) -> void* {
    next_free.load(std::memory_order_relaxed)(freed);
    return nullptr;
  };
  MemoryRegistrar::process().system_calls().release_mapping(block, bytes, 0, release);
}

HOSTNIC_INTERPOSED int malloc_trim(size_t left) noexcept {
  Trim* const next = elf::next_function(next_trim, "malloc_trim");
  const HeapEnd heap_end;
  return next(left);
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
