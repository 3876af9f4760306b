// SPDX-License-Identifier: BSD-3-Clause
// The C library's mremap of much memory that is in the mirror. It would take half a second to copy
// a gigabyte home, and the program waits. So pages of the mirror stay there, and the program sees
// them at the new place; what lies aside comes home by its page tables. The parts move one by one,
// which the kernel does not do with several areas, and what grows is private memory behind them.
// Keys follow through the mem fd, as to all that moves.
#pragma once

#include <cstdint>

#include "verbs-shim/memory/guards.h"
#include "verbs-shim/memory/page_release.h"
#include "verbs-shim/memory/registrar_state.h"

namespace hostnic::memory {

// Less is copied in the time that a thread may be kept from a processor.
inline constexpr uint64_t kLargeMoveBytes = 32 << 20;

// An mremap, whole pages.
struct Remap {
  uint64_t start = 0, old_bytes = 0, new_bytes = 0;
  int flags = 0;
  uint64_t to = 0;  // MREMAP_FIXED; MREMAP_DONTUNMAP: where the program would like it, or 0
  uint64_t end() const { return start + old_bytes; }
};

class LargeMoves {
 public:
  LargeMoves(RegistrarState& state, PageRelease& release, Guards& guards)
      : state_(state), release_(release), guards_(guards) {}
  LargeMoves(const LargeMoves&) = delete;
  LargeMoves& operator=(const LargeMoves&) = delete;

  // Whether the call makes much memory of the mirror smaller, and is valid: the end is unmapped, as
  // by munmap, before the rest moves. Without the registrar's lock. Throws std::bad_alloc.
  bool shrinks(const Remap& call);
  // Whether move() is to make the call, which does not shrink; then `parts` are its areas. No key
  // leads to the mirror's pages any more. With the registrar's lock. Throws std::bad_alloc.
  bool takes(const Remap& call, RawVector<Area>& parts);
  // Returns what mremap does, with errno. Without the lock.
  void* move(const Remap& call, const RawVector<Area>& parts);
  // Does a call that the kernel has refused (EFAULT), because memory that is one piece for the
  // program has been divided into areas: what stayed mapped at the old place of a move while its
  // neighbours were in the mirror never becomes one area with them again. Returns what mremap does,
  // with errno. Without the lock.
  void* move_divided(const Remap& call);
  // Brings home what the program sees in [start, end) of pages of the mirror that have moved, as
  // far as no key leads to it there and nobody else can touch it. With the lock.
  void bring_home(uint64_t start, uint64_t end);

 private:
  bool is_valid(const Remap& call) const;
  bool find_piece(const Remap& call, RawVector<Area>& parts) const;
  bool find_parts(const Remap& call, RawVector<Area>& parts) const;
  void* move_parts(const Remap& call, const RawVector<Area>& parts);
  bool grows_into_stash(const Remap& call);
  static bool finds_room(const Remap& call);
  static uint64_t reserve_place(const Remap& call);
  bool grow_in_place(const Remap& call, const Area& last);
  int move_part(const Area& part, uint64_t to, uint64_t more, bool stays);
  void* move_elsewhere(const Remap& call, const RawVector<Area>& parts);
  void note(const Remap& call, const RawVector<Area>& parts, uint64_t to);
  bool bring_part_home(const Area& area);
  void forget_gone();

  RegistrarState& state_;
  PageRelease& release_;
  Guards& guards_;
};

}  // namespace hostnic::memory
