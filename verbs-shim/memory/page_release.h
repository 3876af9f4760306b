// SPDX-License-Identifier: BSD-3-Clause
// Where migrated pages come back, leave the mirror, or are taken away by the program. With the
// registrar's lock where nothing else is said.
#pragma once

#include <cstdint>

#include "verbs-shim/memory/moved_memory.h"
#include "verbs-shim/memory/registrar_state.h"

namespace hostnic::memory {

// Registrations of at least so many bytes leave their pages in the mirror when they end: to copy
// them back takes a second per gigabyte. It is the size of the heaps in which the C library gives
// threads their memory. What lies in these has to come home: the library empties parts of them by
// bare system calls (MADV_DONTNEED), and relies on zeros there.
inline constexpr uint64_t kLargeBytes = 64 << 20;

class PageRelease {
 public:
  PageRelease(RegistrarState& state, MovedMemory& moved) : state_(state), moved_(moved) {}
  PageRelease(const PageRelease&) = delete;
  PageRelease& operator=(const PageRelease&) = delete;

  // Undoes one registration of [start, end): what nobody has registered any more comes home, or is
  // left in the mirror.
  void unpin(uint64_t start, uint64_t end);
  // Brings home pages that could not come before; or also those that were left in the mirror
  // because they are many.
  enum class Unpark { kSome, kAll };
  void unpark(Unpark what);
  // Moves a migrated range home. Returns false if it stays in the mirror.
  bool return_home(uint64_t start, const PageRange& range);
  // Brings home what a bare mremap has grown in place in [start, end), where nothing else may move
  // pages: it takes advice about forks then.
  void bring_growth_in(uint64_t start, uint64_t end);
  // Notes that the program unmapped or replaced [start, end).
  void lose(uint64_t start, uint64_t end);
  // Loses the pages of the mirror that are gone; where the program has mapped anew and registered
  // meanwhile, the mirror's pages are that registration's. The second is called without the lock.
  void lose_where_gone(uint64_t start, uint64_t end);
  void lose_unmapped(uint64_t start, uint64_t end);
  // Does so for what a bare call has just unmapped, before its thread goes on: it may grow the
  // mirror's mapping to that place again at once.
  void lose_in_time(uint64_t start, uint64_t end);
  // Whether a NIC reaches a part of [start, end) by the mem fd whose end the kernel does not
  // report.
  bool goes_untold(uint64_t start, uint64_t end);
  // Brings home what still lies aside of a range, by its page tables; the rest of it is filled
  // then. No key leads there, or the mem fd follows. Returns false if that failed.
  bool bring_aside_home(uint64_t start, uint64_t end);
  // Forgets lost pages that nobody has registered and nobody sees.
  void free_lost();
  // All devices follow the change; called without the lock, by the revoker's thread.
  void follow(const MemoryChange& change);

  // Has hostnicd reach by the mem fd what it reaches in the mirror, before these pages leave it.
  // What is registered there later is reached so from the beginning. Keys that lead to pages which
  // the program has unmapped there before go on leading to these. Returns false if hostnicd does
  // not answer: nothing may move. Called without the lock.
  bool take_outside(uint64_t start, uint64_t end);
  // The two halves of that: marks what the mem fd reaches from now on, with the lock, and tells
  // hostnicd of `leaving`, without.
  void mark_outside(uint64_t start, uint64_t end, RawVector<MappingChange>& leaving);
  bool tell_outside(const RawVector<MappingChange>& leaving);

 private:
  bool is_large(uint64_t start, uint64_t end) const;
  bool park(uint64_t start, uint64_t end);
  void bring_growth_home(const Area& area, uint64_t start);
  void note_growth(uint64_t& from, uint64_t& to);
  void unwatch_unused(uint64_t start, uint64_t end);
  bool is_left_in_one_piece(uint64_t start, uint64_t end);
  void punch_unseen(uint64_t start, uint64_t end);
  void keep_grown(uint64_t start, uint64_t end);
  void keep(uint64_t start, uint64_t end, bool in_table);

  RegistrarState& state_;
  MovedMemory& moved_;
};

}  // namespace hostnic::memory
