// SPDX-License-Identifier: BSD-3-Clause
// Fork. A child must neither share migrated pages with its parent nor lose them: the mirror's
// mappings are not inherited (MADV_DONTFORK). Before a fork the pages are copied to where they came
// from, the "stash", which a child inherits as any private memory; the child puts it in its place,
// and the parent empties it again. A raw fork system call bypasses this; the child then finds
// nothing mapped there. The registrar's lock is held from before() to the end of both others.
#pragma once

#include <signal.h>

#include <atomic>
#include <cstdint>

#include "verbs-shim/memory/kept_memory.h"
#include "verbs-shim/memory/large_moves.h"
#include "verbs-shim/memory/moved_memory.h"
#include "verbs-shim/memory/page_release.h"
#include "verbs-shim/memory/registrar_state.h"
#include "verbs-shim/memory/shared_pins.h"

namespace hostnic::memory {

class Forks {
 public:
  Forks(RegistrarState& state, PageRelease& release, MovedMemory& moved, KeptMemory& kept,
        SharedPins& pins, LargeMoves& large_moves)
      : state_(state),
        release_(release),
        moved_(moved),
        kept_(kept),
        pins_(pins),
        large_moves_(large_moves) {}
  Forks(const Forks&) = delete;
  Forks& operator=(const Forks&) = delete;

  // After ibv_fork_init() a child has no use for what is registered.
  void skip_copy() { skip_copy_in_child_.store(true); }
  void before();
  void after_in_parent();
  void after_in_child();

 private:
  void copy_for_child();
  void copy_for_child(const Area& area);
  void copy_grown_for_child(const Area& area, uint64_t start, uint64_t end);
  void forget_parent();
  void end();

  RegistrarState& state_;
  PageRelease& release_;
  MovedMemory& moved_;
  KeptMemory& kept_;
  SharedPins& pins_;
  LargeMoves& large_moves_;
  std::atomic<bool> skip_copy_in_child_{false};
  // While a fork is under way: copies that the child inherits, and where they belong.
  struct Snapshot {
    uint64_t start = 0, end = 0;
    uint64_t copy = 0;
    bool shifted = false;
  };
  RawVector<Snapshot> snapshots_;
  sigset_t fork_signals_ = {};
  int fork_cancel_state_ = 0;
};

}  // namespace hostnic::memory
