// SPDX-License-Identifier: BSD-3-Clause
// System calls past the library that concern pages of the mirror: what they do is settled before
// they return, by the threads that read the events of userfaultfds. These wait for nobody who may
// wait for them. Discards are in discards.cc, moves in bare_moves.cc. Called without the
// registrar's lock.
#pragma once

#include <cstdint>

#include "verbs-shim/memory/guards.h"
#include "verbs-shim/memory/page_release.h"
#include "verbs-shim/memory/registrar_state.h"
#include "verbs-shim/memory/settled_discard.h"

namespace hostnic::memory {

class BareCalls {
 public:
  BareCalls(RegistrarState& state, PageRelease& release) : state_(state), release_(release) {}
  BareCalls(const BareCalls&) = delete;
  BareCalls& operator=(const BareCalls&) = delete;

  // Does what a call that waits in the kernel has to find done.
  uint64_t settle(const BlockedCall& call, EventReader reader);
  // Makes what is discarded zeros. `mirror` is the thread's descriptor of it. Returns whether the
  // kernel goes on behind it.
  bool before_discard(const Discard& discard, int mirror);
  // Keeps pages of the mirror from growing in place where memory behind them goes away.
  void guard_gap(uint64_t start, const EventReader& reader);
  // The same where they have come before memory that went away earlier: [start, end) has been
  // registered. Called with the registrar's lock.
  void guard_behind(uint64_t start, uint64_t end);
  // What a thread has made zeros of itself, in its own call.
  SettledDiscard& settled_discard() { return settled_discard_; }
  Guards& guards() { return guards_; }

 private:
  void settle_discard(const BlockedCall& call, const EventReader& reader);
  void discard_in_mirror(uint64_t start, uint64_t end, int mirror);
  void lose_in_time(uint64_t start, uint64_t end, const EventReader& reader);
  bool settle_move(const MoveCall& move, const EventReader& reader);
  bool find_moved(const MoveCall& move, uint64_t& to, Area& area, TextRoom& room) const;
  bool take_home(const MoveCall& move, uint64_t to, const Area& area, const EventReader& reader,
                 TextRoom& room);
  bool take_outside_in_time(uint64_t start, uint64_t end);
  uint64_t known_offset(uint64_t va) const;
  void note_view(const MoveCall& move, uint64_t to, uint64_t offset);
  void make_private(uint64_t start, uint64_t end, uint64_t offset, const EventReader& reader,
                    TextRoom& room);

  RegistrarState& state_;
  PageRelease& release_;
  SettledDiscard settled_discard_;
  Guards guards_;
};

}  // namespace hostnic::memory
