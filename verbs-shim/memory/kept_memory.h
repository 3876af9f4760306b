// SPDX-License-Identifier: BSD-3-Clause
// Private memory that the mem fd reaches and that the program gives away (munmap, MAP_FIXED over,
// free, brk) while a key leads to it. An adapter has such pages pinned: a peer's request goes on
// using them, and nobody else ever sees what it does. Here they move to a mapping of the library's
// own before the program's call takes their place, and hostnicd is told that they have moved. They
// are unmapped with the last registration that was there at that moment. With the registrar's lock.
#pragma once

#include <cstdint>

#include "verbs-shim/memory/moved_memory.h"
#include "verbs-shim/memory/registrar_state.h"

namespace hostnic::memory {

class KeptMemory {
 public:
  KeptMemory(RegistrarState& state, MovedMemory& moved) : state_(state), moved_(moved) {}
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;

  // Has room for what a usual program gives away: later new mappings may lie where it has just
  // made room. Throws std::bad_alloc.
  void reserve();

  // Pages of [start, end) that are at `place` now.
  struct Piece {
    uint64_t start = 0, end = 0, place = 0;
  };

  // Moves what a key leads to in [start, end) away; the mapping stays there, as if nobody had ever
  // touched it. No NIC uses the mem fd meanwhile. What the kernel does not move so stays: pages of
  // hugetlbfs, files before Linux 5.13, and anything where there is no room for a further mapping.
  // Throws std::bad_alloc; `pieces` is right even so.
  void move_away(uint64_t start, uint64_t end, RawVector<Piece>& pieces);
  // Moves a piece back, because nothing took its place.
  void move_back(const Piece& piece);
  // Keeps a piece, whose place has been taken, for the registrations that there are now. A piece
  // for which the books have no room is kept for good.
  void keep(const Piece& piece);
  // Ends the claim that the registration of [start, end) with that number has, if it is as old.
  void release(uint64_t start, uint64_t end, uint64_t number);
  // A child has no registrations, and none of these mappings.
  void forget() { kept_.clear(); }

 private:
  struct Kept {
    uint64_t start = 0, end = 0;  // where it was registered
    uint64_t place = 0;           // where it is now
    uint64_t last_number = 0;
    uint32_t users = 0;  // registrations of it that there still are
  };
  void unmap_unused(uint64_t place, uint64_t place_end);
  void move_part(const Area& area, uint64_t start, uint64_t end, RawVector<Piece>& pieces);

  RegistrarState& state_;
  MovedMemory& moved_;
  RawVector<Kept> kept_;
  RawVector<Area> areas_;
};

}  // namespace hostnic::memory
