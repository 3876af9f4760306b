// SPDX-License-Identifier: BSD-3-Clause
// The C library's calls with the registrar's bookkeeping, where memory in the table may be
// concerned (interpose.cc). Each returns what the C library's does. Any thread, without the
// registrar's lock.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "verbs-shim/memory/bare_calls.h"
#include "verbs-shim/memory/kept_memory.h"
#include "verbs-shim/memory/large_moves.h"
#include "verbs-shim/memory/moved_memory.h"
#include "verbs-shim/memory/page_release.h"
#include "verbs-shim/memory/registrar_state.h"

#ifndef MADV_GUARD_INSTALL  // Linux 6.13, of files 6.15
#define MADV_GUARD_INSTALL 102
#endif

namespace hostnic::memory {

class SystemChange;

class SystemCalls {
 public:
  SystemCalls(RegistrarState& state, PageRelease& release, MovedMemory& moved, KeptMemory& kept,
              BareCalls& bare_calls, LargeMoves& large_moves)
      : state_(state),
        release_(release),
        moved_(moved),
        kept_(kept),
        bare_calls_(bare_calls),
        large_moves_(large_moves) {}
  SystemCalls(const SystemCalls&) = delete;
  SystemCalls& operator=(const SystemCalls&) = delete;

  int munmap(void* at, size_t length_bytes);
  void* mmap_fixed(void* at, size_t length_bytes, int prot, int flags, int fd, off_t offset);
  // shmat with SHM_REMAP.
  void* shmat_over(int id, void* at, int flags);
  int shmdt(const void* at);
  // These make the heap smaller, from `now` on which it ends.
  int brk(void* end, uint64_t now);
  void* sbrk(intptr_t increment, uint64_t now);
  int madvise(void* at, size_t length_bytes, int advice);
  void* mremap(void* from, size_t old_length, size_t length, int flags, void* to);
  // mremap, to which libc's has said EFAULT, of memory that does not concern us: it may be divided
  // since it did.
  void* move_divided(void* from, size_t old_length, size_t length, int flags, void* to);
  // mremap without MREMAP_MAYMOVE, which libc's has said ENOMEM to, of memory that does not concern
  // us: what is in its way may be ours.
  void* grow_in_place(void* from, size_t old_length, size_t length);
  // Does `reallocate`, libc's own realloc, to a block that is a mapping of libc's: it moves there
  // by a bare mremap.
  void* realloc_mapping(void* block, size_t usable_bytes, size_t length,
                        void* (*reallocate)(void*, size_t));
  // Whether the kernel tells of what libc unmaps by itself. Where it does not, note_unmapped() is
  // called.
  bool hears_of_libc() const { return state_.watch.reports(); }
  // Does `release`: free, or realloc to less, of a block that is a mapping of libc's. It unmaps the
  // block, or what lies behind `length`, by a bare munmap, of which the kernel tells when another
  // thread may have mapped something there.
  void* release_mapping(void* block, size_t usable_bytes, size_t length,
                        void* (*release)(void*, size_t));
  // Notes that libc has unmapped [start, end), which was the end of its heap.
  void note_unmapped(uint64_t start, uint64_t end);

 private:
  // glibc's malloc has so many bytes of its own before each block.
  static constexpr size_t kWordBytes = 2 * sizeof(size_t);
  // What a call has where memory was.
  enum class Leaves : uint8_t { kGap, kMapping };
  template <typename Call>
  auto take_away(uint64_t start, uint64_t end, Leaves leaves, Call call);
  bool begin_change(SystemChange& change, uint64_t start, uint64_t end);
  uint64_t segment_end(uint64_t start);
  void* shrink(const Remap& call);
  bool move_block(void*& block, size_t usable_bytes, size_t length);
  bool prepare_move(SystemChange& change, const Remap& call, RawVector<Area>* parts);
  void note_growth(uint64_t start, uint64_t end) noexcept;
  void unwatch_growth(uint64_t start, uint64_t end) noexcept;
  bool prepare_replacement(SystemChange& change, uint64_t start, uint64_t end);
  bool prepare_release(SystemChange& change, uint64_t start, uint64_t end, uint64_t words);
  bool bring_home(uint64_t start, uint64_t end);
  void watch_again(uint64_t start, uint64_t end);
  void watch_left_behind(uint64_t start, uint64_t end);
  bool in_mirror(uint64_t start, uint64_t end);
  int free_each_area(uint64_t start, uint64_t end);
  int advise(void* at, size_t length_bytes, int advice);
  bool discard_first(const Discard& discard);
  int discard(void* at, size_t length_bytes, int advice);
  bool any_without_stash(uint64_t start, uint64_t end);
  int madvise_part(uint64_t start, uint64_t end, int advice, bool in_mirror, uint64_t stash_delta);

  RegistrarState& state_;
  PageRelease& release_;
  MovedMemory& moved_;
  KeptMemory& kept_;
  BareCalls& bare_calls_;
  LargeMoves& large_moves_;
};

}  // namespace hostnic::memory
