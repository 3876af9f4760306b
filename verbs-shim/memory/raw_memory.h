// SPDX-License-Identifier: BSD-3-Clause
// Memory for the registrar's own bookkeeping, straight from the kernel.
//
// The registrar must not call malloc while it holds its mutex: an application's allocator may hold
// its own lock while it calls our munmap, which takes that mutex. It must not keep anything in
// memory that a user may register either: writing there during a migration would wait for itself.
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

// Newer than some C libraries' headers.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace hostnic::memory {

inline constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t page_down(uint64_t v) { return v & ~(kPageBytes - 1); }
constexpr uint64_t page_up(uint64_t v) { return page_down(v + kPageBytes - 1); }

// Make the system calls that interpose.cc takes over, past the interposers (and anybody else's).
// They set errno as the originals do.
inline void* raw_mmap(void* at, size_t length, int prot, int flags, int fd, off_t offset) {
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, length, prot, flags, fd, offset));
}
inline int raw_munmap(void* at, size_t length) {
  return static_cast<int>(syscall(SYS_munmap, at, length));
}
inline int raw_madvise(void* at, size_t length, int advice) {
  return static_cast<int>(syscall(SYS_madvise, at, length, advice));
}
inline void* raw_mremap(void* from, size_t old_length, size_t length, int flags, void* to) {
  return reinterpret_cast<void*>(syscall(SYS_mremap, from, old_length, length, flags, to));
}
// Locks pages as they come; those that are there at once.
inline int raw_mlock_on_fault(void* at, size_t length) {
  return static_cast<int>(syscall(SYS_mlock2, at, length, MLOCK_ONFAULT));
}
inline int raw_munlock(void* at, size_t length) {
  return static_cast<int>(syscall(SYS_munlock, at, length));
}
inline void* pointer(uint64_t va) { return reinterpret_cast<void*>(va); }
inline uint64_t address(const void* p) { return reinterpret_cast<uint64_t>(p); }

// Maps private memory at [at, at + length), or anywhere if `at` is null, that has no pages yet:
// after mlockall(MCL_FUTURE) new memory gets them at once. Returns MAP_FAILED with errno.
inline void* map_without_pages(void* at, size_t length) {
  const int fixed = at != nullptr ? MAP_FIXED : 0;
  void* memory =
      raw_mmap(at, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);
  if (memory == MAP_FAILED) return memory;
  raw_munlock(memory, length);
  return mprotect(memory, length, PROT_READ | PROT_WRITE) == 0 ? memory : MAP_FAILED;
}

// Frees the pages of private memory, locked ones too, where the kernel does that (Linux 5.18).
inline void discard_private(void* at, size_t length) {
  constexpr int kDontNeedLocked = 24;  // MADV_DONTNEED_LOCKED
  if (raw_madvise(at, length, MADV_DONTNEED) != 0 && errno == EINVAL)
    raw_madvise(at, length, kDontNeedLocked);
}

// While one exists its thread gets std::bad_alloc instead of new mappings: a program that has just
// made room is perhaps about to map something at that very place by MAP_FIXED.
class NoNewMappings {
 public:
  NoNewMappings() { in_force = true; }
  ~NoNewMappings() { in_force = false; }
  NoNewMappings(const NoNewMappings&) = delete;
  NoNewMappings& operator=(const NoNewMappings&) = delete;
  static inline thread_local bool in_force = false;
};

// While one exists new mappings of its thread lie outside of [start, end): the program is about to
// unmap that with its gaps, and what is in them.
class OutsideOnly {
 public:
  OutsideOnly() : before_(in_force) {}
  ~OutsideOnly() { in_force = before_; }
  OutsideOnly(const OutsideOnly&) = delete;
  OutsideOnly& operator=(const OutsideOnly&) = delete;
  struct Range {
    uint64_t start, end;
  };
  static inline thread_local Range in_force{0, 0};

 private:
  const Range before_;
};

// Reserves `length` bytes, whole pages, that can't be accessed yet, as OutsideOnly has it. Returns
// MAP_FAILED with errno.
inline void* reserve_outside(size_t length) {
  const auto [start, end] = OutsideOnly::in_force;
  // So much can't lie in the range, and leaves enough on one of its sides.
  const size_t whole = start == end ? length : end - start + 2 * length;
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* at = raw_mmap(nullptr, whole, PROT_NONE, kFlags, -1, 0);
  if (whole == length) return at;
  if (at == MAP_FAILED) {  // RLIMIT_AS, or RLIMIT_MEMLOCK after mlockall: perhaps less is there
    at = raw_mmap(nullptr, length, PROT_NONE, kFlags, -1, 0);
    if (at == MAP_FAILED || address(at) + length <= start || end <= address(at)) return at;
    raw_munmap(at, length);
    errno = ENOMEM;
    return MAP_FAILED;
  }
  const uint64_t low = address(at), high = low + whole;
  const bool at_low = high <= start || end <= low || (low < start && start - low >= length);
  const uint64_t place = at_low ? low : high - length;
  if (low < place) raw_munmap(pointer(low), place - low);
  if (place + length < high) raw_munmap(pointer(place + length), high - (place + length));
  raw_munlock(pointer(place), length);
  return pointer(place);
}

// Makes a whole mapping. It throws std::bad_alloc, which the registrar turns into ENOMEM.
inline void* map_or_throw(size_t length) {
  if (NoNewMappings::in_force) throw std::bad_alloc();
  constexpr int kAccess = PROT_READ | PROT_WRITE;
  const size_t bytes = page_up(length);
  const bool outside = OutsideOnly::in_force.start != OutsideOnly::in_force.end;
  void* const at = outside ? reserve_outside(bytes)
                           : raw_mmap(nullptr, bytes, kAccess, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED || (outside && mprotect(at, bytes, kAccess) != 0)) throw std::bad_alloc();
  return at;
}

// An allocator for arrays: one mapping each. It is thread-safe.
template <typename T>
class RawArrayAllocator {
 public:
  using value_type = T;
  RawArrayAllocator() = default;
  template <typename U>
  RawArrayAllocator(const RawArrayAllocator<U>&) {}  // NOLINT(google-explicit-constructor)

  T* allocate(size_t count) { return static_cast<T*>(map_or_throw(count * sizeof(T))); }
  void deallocate(T* array, size_t count) { raw_munmap(array, page_up(count * sizeof(T))); }
  template <typename U>
  bool operator==(const RawArrayAllocator<U>&) const {
    return true;
  }
};

template <typename T>
using RawVector = std::vector<T, RawArrayAllocator<T>>;

// An allocator for the nodes of containers: one at a time from a free list that only grows. It is
// not thread-safe: used under the registrar's mutex only.
template <typename T>
class RawNodeAllocator {
 public:
  using value_type = T;
  constexpr RawNodeAllocator() = default;
  template <typename U>
  constexpr RawNodeAllocator(const RawNodeAllocator<U>&) {}  // NOLINT(google-explicit-constructor)

  T* allocate(size_t) {
    if (free_ == nullptr) refill();
    Node* node = free_;
    free_ = node->next;
    return reinterpret_cast<T*>(node);
  }
  void deallocate(T* object, size_t) {
    Node* node = reinterpret_cast<Node*>(object);
    node->next = free_;
    free_ = node;
  }
  template <typename U>
  bool operator==(const RawNodeAllocator<U>&) const {
    return true;
  }

 private:
  union Node {
    Node* next;
    alignas(T) std::byte storage[sizeof(T)];
  };
  static void refill() {
    constexpr size_t kChunk = 64 * 1024;
    Node* nodes = static_cast<Node*>(map_or_throw(kChunk));
    for (size_t i = 0; i < kChunk / sizeof(Node); i++) {
      nodes[i].next = free_;
      free_ = &nodes[i];
    }
  }
  static inline constinit Node* free_ = nullptr;
};

}  // namespace hostnic::memory
