// SPDX-License-Identifier: BSD-3-Clause
// Learns of every change of the mappings of chosen memory, by whatever way it is made: calls inside
// the C library (free, brk), raw system calls, the program's own.
//
// By a userfaultfd that stops nobody's access: it asks for the events "unmapped" and "moved" only,
// and a thread that unmaps watched memory waits in the kernel until the event was read. So what is
// done before reading it is done before the thread can map something else there. Works for ordinary
// users; not where the program itself has a userfaultfd on the memory, nor where the kernel refuses
// userfaultfd altogether, nor, before Linux 6.7, for private mappings of files.
//
// A watch may also settle calls: the thread that discards pages of the mirror (MADV_DONTNEED),
// which the kernel would leave as they are, or moves them, waits until what it did is right.
#pragma once

#include <atomic>
#include <cstdint>

#include "verbs-shim/memory/blocked_calls.h"
#include "verbs-shim/memory/range_table.h"
#include "verbs-shim/memory/revoker.h"

namespace hostnic::memory {

class MappingWatch {
 public:
  // Opens the userfaultfd and starts the thread that reads events. `settle`, if not null, is called
  // from that thread for the calls that other threads wait in, before each event. Returns false if
  // that failed: error() says why. There may be one caller at a time, not in the registrar's
  // critical section.
  bool start(Revoker& revoker, const char* thread_name, SettleCall* settle = nullptr);
  const char* error() const { return error_; }
  bool runs() const { return fd_ >= 0; }
  // Whether the thread still reads events: the program may have closed what it has not opened. For
  // any thread.
  bool reports() const { return reports_.load(); }
  // Whether private mappings of files can be watched (Linux 6.7).
  bool takes_any_memory() const { return takes_any_memory_; }

  // Returns when every unmapping whose room a caller's memory may lie in has been reported to the
  // revoker. For any thread, without a lock.
  void wait_for_reports() const;

  // Called in the registrar's critical section. Watches [start, end), a whole area of the process:
  // a part of one would be an area of its own, which the program can't move together with the rest.
  // Returns false if this memory can't be watched. It throws std::bad_alloc.
  bool watch(uint64_t start, uint64_t end);
  // Watches all of [start, end), of the mirror. What a thread of ours watches in its own way for
  // now (pages that come late), it will hand over. It throws nothing after reserve().
  void claim(uint64_t start, uint64_t end);
  void reserve() { ranges_.reserve(3); }  // throws std::bad_alloc
  // A descriptor of the userfaultfd for a thread that hands memory over; -1: none.
  int fd() const { return fd_; }
  // Notes that an area, of which a part is watched, may have grown since: all of it is watched
  // then. Returns false if no part of it is. Throws std::bad_alloc.
  bool note_area(uint64_t start, uint64_t end);
  // Ends the watch of a part of an area that is not known here, if the kernel watches it: one that
  // had grown out of a watched area has been divided from it since.
  void unwatch_unknown(uint64_t start, uint64_t end);
  // Ends the watch of a range, as far as it is watched: before pages of it are moved by us. Throws
  // std::bad_alloc.
  void unwatch(uint64_t start, uint64_t end);
  // Ends the watch of what has grown out of a watched range: only the kernel knows of it.
  void unwatch_growth(uint64_t start, uint64_t end);
  // Ends the watch of what has moved from [start, end), and forgets it: MREMAP_DONTUNMAP leaves an
  // area there that the kernel goes on watching. Throws std::bad_alloc.
  void leave(uint64_t start, uint64_t end);
  // Forgets a range that is no longer mapped. Throws std::bad_alloc.
  void forget(uint64_t start, uint64_t end);
  // Whether the end of any part of [start, end) is reported.
  bool covers(uint64_t start, uint64_t end);
  // Finds the first watched range that ends behind `va`. Returns false if there is none.
  bool next_range(uint64_t va, uint64_t& start, uint64_t& end);

  // Called in a forked child.
  void forget_parent();

 private:
  void run();
  int ask_for_events(int fd);
  bool waits_for_events();
  bool report_is_due() const;
  bool read_events();

  Revoker* revoker_ = nullptr;
  SettleCall* settle_ = nullptr;
  bool takes_any_memory_ = false;
  int fd_ = -1;
  std::atomic<bool> reports_{false};  // true while the thread runs
  std::atomic<uint32_t> drains_{0};   // counts how often all events had been read, and handed on
  RangeTable ranges_;                 // ranges that the kernel watches; counts and places are
                                      // unused
  char error_[160] = "not started yet";
};

}  // namespace hostnic::memory
