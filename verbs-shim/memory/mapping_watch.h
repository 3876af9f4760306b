// SPDX-License-Identifier: BSD-3-Clause
// Learns of every change of the mappings of chosen memory, by whatever way it is made: calls inside
// the C library (free, brk), raw system calls, the program's own.
//
// By a userfaultfd that stops nobody's access: it asks for the events "unmapped" and "moved" only,
// and a thread that unmaps watched memory waits in the kernel until the event was read. So what is
// done before reading it is done before the thread can map something else there. Works for ordinary
// users; not for private mappings of files, nor where the program itself has a userfaultfd on the
// memory, nor where the kernel refuses userfaultfd altogether.
#pragma once

#include <atomic>
#include <cstdint>

#include "verbs-shim/memory/range_table.h"
#include "verbs-shim/memory/revoker.h"

namespace hostnic::memory {

class MappingWatch {
 public:
  // Opens the userfaultfd and starts the thread that reads events. Returns false if that failed:
  // error() says why. There may be one caller at a time, not in the registrar's critical section.
  bool start(Revoker& revoker);
  const char* error() const { return error_; }
  bool runs() const { return fd_ >= 0; }

  // Returns when every unmapping whose room a caller's memory may lie in has been reported to the
  // revoker. For any thread, without a lock.
  void wait_for_reports() const;

  // Called in the registrar's critical section. Watches [start, end), which lies in one area that
  // reaches from `area_start` to `area_end`; with many small ranges more than that, because each
  // costs the process up to two areas. Returns false if this memory can't be watched. It throws
  // std::bad_alloc.
  bool watch(uint64_t start, uint64_t end, uint64_t area_start, uint64_t area_end);
  // Whether there are so many ranges that more than asked for is watched.
  bool watches_blocks() const { return ranges_.size() > kExactRanges; }
  // Ends the watch of a range, as far as it is watched: before pages of it are moved by us. Throws
  // std::bad_alloc.
  void unwatch(uint64_t start, uint64_t end);
  // Forgets a range that is no longer mapped. Throws std::bad_alloc.
  void forget(uint64_t start, uint64_t end);
  // Whether the end of any part of [start, end) is reported.
  bool covers(uint64_t start, uint64_t end);
  // Finds the first watched range that ends behind `va`. Returns false if there is none.
  bool next_range(uint64_t va, uint64_t& start, uint64_t& end);

  // Called in a forked child.
  void forget_parent();

 private:
  static constexpr size_t kExactRanges = 512;

  void run();
  bool waits_for_events();
  bool report_is_due() const;
  bool read_events();

  Revoker* revoker_ = nullptr;
  int fd_ = -1;
  std::atomic<bool> reports_{false};  // true while the thread runs
  RangeTable ranges_;                 // ranges that the kernel watches; counts and places are
                                      // unused
  char error_[160] = "not started yet";
};

}  // namespace hostnic::memory
