// SPDX-License-Identifier: BSD-3-Clause
// Pages without access that keep pages of the mirror from growing in place by a bare mremap, of
// which nobody is told: it would show what a key still leads to. The program knows nothing of them,
// and finds their places free: a call of the C library's takes them out of its way.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "verbs-shim/memory/own_process.h"

namespace hostnic::memory {

// For any thread, without a lock.
class Guards {
 public:
  Guards() = default;
  Guards(const Guards&) = delete;
  Guards& operator=(const Guards&) = delete;

  // Whether this process has ever put any, of which it knows: a bare fork's child does not. Works
  // before constructors.
  static bool any() {
    return put_any_.load(std::memory_order_relaxed) && !OwnProcess::is_bare_child();
  }

  // Puts one at `start`, if nothing is mapped there, there are not too many already, and it is not
  // the end of the heap.
  void put(uint64_t start);
  // Unmaps those in [start, end), if nothing else is mapped there. Returns whether there were any
  // and they are gone: then put_again() or forget() has to follow.
  bool make_room(uint64_t start, uint64_t end);
  // Puts those again that make_room() has taken away, since nothing has come to their place.
  void put_again(uint64_t start, uint64_t end);
  // Forgets those in [start, end): the place is the program's.
  void forget(uint64_t start, uint64_t end);

  // libc's mmap with MAP_FIXED_NOREPLACE, its mremap without a new place and its shmat without
  // SHM_REMAP, where only guards are in the way. What grows may not be of the mirror.
  void* mmap(void* at, size_t length, int prot, int flags, int fd, off_t offset);
  void* grow(void* from, size_t old_length, size_t length, int flags);
  void* shmat(int id, void* at, int flags);

 private:
  static constexpr size_t kMost = 1024;
  bool is_place(uint64_t at) const;
  static bool is_break(uint64_t start);
  static bool map(uint64_t start);

  static inline constinit std::atomic<bool> put_any_{false};
  std::atomic<uint64_t> places_[kMost] = {};  // 0: free
};

}  // namespace hostnic::memory
