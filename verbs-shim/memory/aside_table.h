// SPDX-License-Identifier: BSD-3-Clause
// Memory that lies aside (late_fill.h), and how far each of its slices of 2 MiB has got: in a map
// that hostnicd maps as well.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "protocol/hostif/memory_region.h"
#include "verbs-shim/memory/raw_memory.h"

namespace hostnic::memory {

constexpr uint64_t slice_down(uint64_t va) { return va & ~(kSliceBytes - 1); }
constexpr uint64_t slice_up(uint64_t va) { return slice_down(va + kSliceBytes - 1); }

constexpr bool overlaps(uint64_t start, uint64_t end, uint64_t from, uint64_t to) {
  return start < to && from < end;
}

// Written by the thread of late filling only, but for the map, which the registrar makes. Any
// thread may read; a range that is whole slices may have been forgotten by then.
class AsideTable {
 public:
  using Slice = std::atomic<SliceState>;
  static_assert(sizeof(Slice) == 1 && Slice::is_always_lock_free);
  // Further states, which hostnicd takes for pages that are not there yet.
  static constexpr SliceState kMoving{3};  // the registrar moves it aside, or home
  static constexpr SliceState kPartly{4};  // a device has a page of it in its hands; the rest is
                                           // filled

  // A part of a range that lies aside, and where its slices' states are in the map.
  struct Part {
    uint64_t start = 0, end = 0;
    uint64_t map_start = 0;  // what the first byte of the map stands for, as an address
    uint64_t map_offset(uint64_t va) const { return (va - map_start) / kSliceBytes; }
  };
  // Memory that was moved aside, whole slices.
  struct Aside {
    std::atomic<uint64_t> start{0};  // 0: the entry is free
    uint64_t end = 0, stash_delta = 0;
    uint64_t map_start = 0;  // as in Part
    bool takes_out = false;  // pages leave the stash before they are copied

    uint64_t slot(uint64_t va) const { return (va - map_start) / kSliceBytes; }
    bool used() const { return start.load(std::memory_order_acquire) != 0; }
    bool overlaps(uint64_t from, uint64_t to) const {
      return used() && start.load(std::memory_order_relaxed) < to && from < end;
    }
  };
  static constexpr size_t kMaxAsides = 256;

  // Makes the map, once. Returns 0 or an errno value.
  int make_map();
  // A new descriptor of the map, or -1 with errno: the program closed ours.
  int duplicate_map() const;
  // Called in a forked child, which inherits no map, before the table is made anew.
  void forget_parent();

  // Whether any part of [start, end) lies aside, or has just ceased to.
  bool any_aside(uint64_t start, uint64_t end) const;
  // Whether a slice of [start, end) has not been copied yet. As any_aside().
  bool any_unfilled(uint64_t start, uint64_t end) const;
  // Whether any memory of this process lies aside, at no cost.
  static bool anything_aside() { return asides_in_use_.load(std::memory_order_relaxed) != 0; }
  // Finds the first part of [start, end) that lies aside. Returns false if there is none.
  bool next_aside(uint64_t start, uint64_t end, Part& part) const;

  const Aside (&all() const)[kMaxAsides] { return asides_; }
  // The entry of an address; null: it does not lie aside.
  const Aside* find(uint64_t va) const;
  Slice& slice(const Aside& aside, uint64_t va) const { return map_[aside.slot(va)]; }
  // The first slice in a state, from `from` on and round; 0 if there is none.
  uint64_t next_in_state(SliceState state, uint64_t from, const Aside*& found) const;
  // Memory of which nothing lies aside any more, and which is still known; null: none.
  const Aside* filled() const;

  // Adds whole slices, all moving. Returns 0, or ENOSPC.
  int add(uint64_t start, uint64_t end, uint64_t stash_delta, bool takes_out);
  // Gives the slices of [start, end) that are in one state another.
  void mark(uint64_t start, uint64_t end, SliceState from, SliceState to);
  // Forgets [start, end), whole slices of which nothing lies aside, after let_go(from, to,
  // stash_delta) for each piece of memory. In the middle of memory it takes an entry; without one
  // the range stays known, as filled.
  template <class LetGo>
  void cut(uint64_t start, uint64_t end, LetGo let_go) {
    for (Aside& aside : asides_) {
      if (!aside.overlaps(start, end)) continue;
      const uint64_t from = std::max(aside.start.load(), start), to = std::min(aside.end, end);
      let_go(from, to, aside.stash_delta);
      take_from(aside, from, to);
    }
  }

 private:
  static constexpr uint64_t kMapBytes = 1 << 20;  // slices of 2 TiB

  uint64_t find_room(uint64_t slices) const;
  void take_from(Aside& aside, uint64_t from, uint64_t to);

  static inline constinit std::atomic<uint32_t> asides_in_use_{0};

  Aside asides_[kMaxAsides];
  int map_fd_ = -1;
  uint64_t map_inode_ = 0;
  Slice* map_ = nullptr;
  uint64_t next_slot_ = 0;
};

}  // namespace hostnic::memory
