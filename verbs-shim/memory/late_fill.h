// SPDX-License-Identifier: BSD-3-Clause
// Lets the pages of large memory get into the mirror late: the private pages move aside at once, by
// their page tables, the mirror's empty mapping takes their place, and each slice of 2 MiB is
// copied when somebody touches it, when hostnicd asks for it, or by and by. A thread that touches
// a slice before waits, in a system call as well: for full userfaultfd only.
//
// One thread of its own does all the copying, so that no slice is copied twice. It takes no lock,
// allocates nothing, and touches nothing but pages that lie aside. Its userfaultfd is in a
// descriptor table of its own: a program that closes all its descriptors would otherwise end the
// waiting, and read zeros.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "protocol/hostif/memory_region.h"
#include "verbs-shim/memory/aside_table.h"
#include "verbs-shim/memory/blocked_calls.h"
#include "verbs-shim/memory/migration.h"
#include "verbs-shim/memory/page_passage.h"
#include "verbs-shim/memory/raw_memory.h"
#include "verbs-shim/memory/userfault.h"

namespace hostnic::memory {

// Registrations of at least so many bytes move memory aside: less is copied as quickly.
inline constexpr uint64_t kLateBytes = 16 << 20;

class LateFill {
 public:
  // Called by the thread when nothing of some memory lies aside any more.
  using Tell = void (*)();
  // Called by the thread.
  using Lost = PagePassage::Lost;

  // What the thread works with; all may be closed once it has started.
  struct Descriptors {
    int mirror = -1;       // that it copies into
    int pagemap = -1;      // /proc/self/pagemap
    int lent_device = -1;  // /dev/userfaultfd; -1: none
    int watch = -1;        // the userfaultfd that watches what has been filled; -1: none
  };
  // Starts the thread. Not in the registrar's critical section. `settle` is called from it as
  // described in blocked_calls.h. Returns 0 or an errno value: EPERM where there is no full
  // userfaultfd, EINVAL where the kernel can't take pages out (before Linux 6.8).
  int start(const Descriptors& descriptors, Tell tell, SettleCall* settle = nullptr,
            Lost lost = nullptr);
  // Makes zeros of what lies aside in [start, end), whole pages. Called from the thread only.
  void drop(uint64_t start, uint64_t end);
  // Has the thread do so, for another one that is about to discard them.
  void drop_first(uint64_t start, uint64_t end) {
    if (asides_.any_aside(start, end)) order(Command::kDrop, start, end, 0);
  }
  const AsideTable& asides() const { return asides_; }
  bool is_own_view(uint64_t va) const { return passage_.is_own_view(va); }
  bool runs() const { return state_.load(std::memory_order_acquire) == State::kRuns; }

  // Tests that look at what is aside want nothing to be copied by and by. Called before start().
  void copy_only_wanted() { only_wanted_ = true; }

  // The functions below are called under the registrar's mutex, with all signals blocked, by a
  // thread whose stack does not lie in the memory concerned.

  // Ends the thread; nothing lies aside. It can be started again.
  void stop();
  // Whether the thread needs a part of [start, end) to go on: that must not move aside.
  bool stands_in(uint64_t start, uint64_t end) const {
    return overlaps(stack_start_, stack_end_, start, end) ||
           overlaps(bell_, bell_ + kPageBytes, start, end);
  }
  // Lets the mirror's empty mapping take the place of [start, end), whole slices of one private
  // anonymous area with protection `prot`, whose pages move to the stash that `stash_delta` leads
  // to, which is reserved. The program may not unmap the range meanwhile. `stops` is another full
  // userfaultfd. Returns 0, or an errno value and has changed nothing.
  int move_aside(uint64_t start, uint64_t end, uint64_t stash_delta, int mirror_fd, int prot,
                 Userfault& stops);
  // Returns when no slice that [start, end) overlaps lies aside any more. Where the program has
  // unmapped it the mirror gets its pages all the same. Returns 0 or an errno value: EBUSY when a
  // device has a page in its hands for long.
  int fill(uint64_t start, uint64_t end);
  // Brings the slices in [start, end) that still lie aside back to their place, where the mirror's
  // mapping still is, with protection `prot`, and calls use(from, to) for each run of these. The
  // program may not unmap the range meanwhile. Slices that are only partly in the range, or have
  // been copied in part, are filled. Returns as fill() does.
  template <class Use>
  int bring_home(uint64_t start, uint64_t end, int prot, Use use) {
    if (!asides_.any_aside(start, end)) return 0;
    const uint64_t last = slice_down(end);
    order(Command::kTake, slice_up(start), last, 0);
    for (uint64_t from = slice_up(start), to = 0; next_taken(from, last, to); from = to) {
      if (put_home(from, to, prot) != 0) break;
      use(from, to);
    }
    order(Command::kGiveBack, slice_up(start), last, 0);
    return fill(start, end);
  }
  // Makes huge pages of what was copied while somebody waited, by and by, when nobody does.
  void tidy(uint64_t start, uint64_t end) {
    if (runs()) order(Command::kTidy, slice_up(start), slice_down(end), 0);
  }
  // Called in a forked child, which has no such thread. The parent had filled everything before.
  void forget_parent();

 private:
  enum class State : uint32_t { kNotStarted, kRuns, kFailed };
  enum class Command : uint32_t {
    kPrepare,
    kAdd,
    kAdded,
    kFill,
    kTake,
    kLeave,
    kGiveBack,
    kTidy,
    kDrop,
    kStop
  };
  // Memory that the program moved by mremap while it lay aside.
  struct Moved {
    uint64_t from = 0, to = 0, length_bytes = 0;
  };
  static constexpr size_t kMaxMoved = 64;
  static constexpr uint64_t kTakesOut = 1;  // added to the stash_delta of an order

  // Functions in late_fill.cc: the registrar's threads.
  int order(Command command, uint64_t start, uint64_t end, uint64_t argument);
  bool next_taken(uint64_t& from, uint64_t end, uint64_t& to) const;
  int put_home(uint64_t from, uint64_t to, int prot);
  static int swap(uint64_t start, uint64_t length, void* stash, void* incoming, Userfault& stops);

  // Functions in late_fill_thread.cc and late_fill_orders.cc: the thread.
  void run();
  int open_descriptors();
  int make_bell();
  void wait(int64_t pause_ns) const;
  void read_events();
  bool change_is_due() const;
  void want(uint64_t va);
  void follow_moved();
  bool obey();
  int carry_out();
  int64_t step();
  bool release_filled();
  bool tidy_some();
  enum class Pages { kAny, kHuge };
  int fill_slice(const AsideTable::Aside& aside, uint64_t start, Pages pages);
  void collapse(uint64_t start);
  int fill_all(uint64_t start, uint64_t end);
  void settle(const AsideTable::Aside& aside, uint64_t start);
  void supply(uint64_t page) const;
  void wake(uint64_t start, uint64_t end) const;
  bool hand_over(uint64_t start, uint64_t end) const;
  void hand_over_pieces(uint64_t start, uint64_t end) const;
  void let_go(uint64_t start, uint64_t end) const;
  void read_last_events();
  // Of memory that is filled the stash has given all of its pages; of what has gone home it is no
  // longer there.
  enum class Stash { kEmpty, kGone };
  void cut(uint64_t start, uint64_t end, Stash stash);

  std::atomic<State> state_{State::kNotStarted};  // futex word while it starts
  int start_error_ = 0;
  Descriptors given_;
  Tell tell_ = nullptr;
  SettleCall* settle_ = nullptr;
  Lost lost_ = nullptr;
  AsideTable asides_;
  PagePassage passage_;

  // The order that the thread is to carry out, and its result. A thread that orders touches the
  // bell, a missing page, and waits in the kernel until the thread has put a page there.
  uint64_t bell_ = 0;
  std::atomic<uint64_t> ordered_{0}, done_{0};  // orders are numbered
  Command command_ = Command::kFill;
  uint64_t command_start_ = 0, command_end_ = 0, command_argument_ = 0;
  int result_ = 0;

  // The thread's own: descriptors in its own table, and what it will look at next.
  int fd_ = -1, own_mirror_fd_ = -1, own_watch_fd_ = -1;
  uint64_t stack_start_ = 0, stack_end_ = 0;
  bool bell_rings_ = false, only_wanted_ = false, no_huge_pages_ = false;
  uint64_t tidy_at_ = 0, tidy_end_ = 0;
  Moved moved_[kMaxMoved];
  size_t moved_count_ = 0;
  uint64_t next_ = 0;
  int64_t eager_until_ns_ = 0, retry_ns_ = 0;
};

}  // namespace hostnic::memory
