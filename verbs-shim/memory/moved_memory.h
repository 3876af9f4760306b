// SPDX-License-Identifier: BSD-3-Clause
// Memory that the program moved by mremap while a key leads to it. hostnicd reaches it at its new
// place by the mem fd; here it counts in the table at both places, so that its end is noticed where
// it is, and its registrations are undone where they were made. With the registrar's lock.
#pragma once

#include <cstdint>

#include "verbs-shim/memory/registrar_state.h"

namespace hostnic::memory {

class PageRelease;

class MovedMemory {
 public:
  MovedMemory(RegistrarState& state, PageRelease& release) : state_(state), release_(release) {}
  MovedMemory(const MovedMemory&) = delete;
  MovedMemory& operator=(const MovedMemory&) = delete;

  // Has room for the moves of a usual program: later there may be none.
  void reserve();
  bool empty() const { return moved_.empty(); }
  struct Move {
    uint64_t from = 0;  // where it was registered
    uint64_t to = 0;    // where it is now
    uint64_t length_bytes = 0;
  };

  // Notes that the program has moved pages from [from, from + length_bytes) to `to`.
  void note_move(uint64_t from, uint64_t to, uint64_t length_bytes);
  // Takes what a key leads to at [from, end), which has moved to `to`, out of the books: by where
  // it was registered. The list is good until the next call.
  const RawVector<Move>& take(uint64_t from, uint64_t end, uint64_t to);
  // Forgets moved memory that was registered in [start, end) and is no longer; or what was moved to
  // [start, end): it is no longer there.
  void drop_moves(uint64_t start, uint64_t end);
  void drop_moves_to(uint64_t start, uint64_t end);
  // A child has no registrations.
  void forget() { moved_.clear(); }

 private:
  void hold(uint64_t start, uint64_t end);
  void come_back(uint64_t start, uint64_t end);

  RegistrarState& state_;
  PageRelease& release_;
  RawVector<Move> moved_, moving_;
};

}  // namespace hostnic::memory
