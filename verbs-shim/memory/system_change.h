// SPDX-License-Identifier: BSD-3-Clause
// A call of the program's that may take parts of the table away (system_calls.cc), from before it
// is made until its end. Meanwhile its thread takes no signal (a handler's calls might wait for its
// end) and is not cancelled (see critical.h), and no NIC uses the mem fd if it could reach by it
// what the kernel does not tell of. The registrar's lock is not held all the time: others who watch
// mappings may deregister within.
#pragma once

#include <signal.h>

#include <cstddef>
#include <cstdint>

#include "verbs-shim/memory/critical.h"
#include "verbs-shim/memory/kept_memory.h"
#include "verbs-shim/memory/moved_memory.h"
#include "verbs-shim/memory/page_release.h"
#include "verbs-shim/memory/registrar_state.h"

namespace hostnic::memory {

class SystemChange {
 public:
  SystemChange(RegistrarState& state, PageRelease& release, MovedMemory& moved, KeptMemory& kept);
  ~SystemChange();
  SystemChange(const SystemChange&) = delete;
  SystemChange& operator=(const SystemChange&) = delete;

  // With the registrar's lock.
  // Has what is mapped meanwhile lie outside of [start, end), which the call takes with its gaps.
  void stay_outside(uint64_t start, uint64_t end) { OutsideOnly::in_force = {start, end}; }
  // Notes that the call may take [start, end).
  void may_take(uint64_t start, uint64_t end);
  // Moves what keys lead to in [start, end) to where it is kept, behind may_take(). Where there is
  // no room it is left to the call, which must not fail for that: perhaps it makes the room.
  void keep(uint64_t start, uint64_t end) noexcept;

  // Moves that back, because the call has failed. With the registrar's lock.
  void let_be();
  // Where the page that was at `at` is now; null: it was not moved.
  const std::byte* kept_at(uint64_t at) const;
  // Notes that the call did take [start, end). It is forgotten here and now: the call may have
  // moved something else to its place. Without the lock.
  void took(uint64_t start, uint64_t end);
  // Notes that the call moved [start, end) to `to`. With the registrar's lock.
  void moved(uint64_t start, uint64_t end, uint64_t to);

 private:
  static constexpr size_t kMostParts = 3;  // besides what is kept
  void add(const MappingChange& part) { parts_[count_++] = part; }
  void note_kept(uint64_t start, uint64_t end);

  const CancellationOff cancellation_off_;
  const OutsideOnly outside_only_;
  RegistrarState& state_;
  PageRelease& release_;
  MovedMemory& moved_;
  KeptMemory& kept_;
  bool begun_ = false;
  uint64_t change_ = 0;
  MappingChange parts_[kMostParts];
  size_t count_ = 0;
  RawVector<MappingChange> kept_parts_;  // told before those; has room for them
  RawVector<KeptMemory::Piece> pieces_;  // of what lies where the call takes something away
  sigset_t signals_;
};

}  // namespace hostnic::memory
