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
  // Opens the userfaultfd and starts the thread that reads events. False: error() says why not.
  // One caller at a time, not in the registrar's critical section.
  bool start(Revoker& revoker);
  const char* error() const { return error_; }
  bool runs() const { return fd_ >= 0; }

  // Returns when every unmapping whose room a caller's memory may lie in has been reported to the
  // revoker. Any thread, without a lock.
  void wait_for_reports() const;

  // In the registrar's critical section. Watches [start, end), which lies in one area that reaches
  // from `area_start` to `area_end`; of many small ranges more than that, because each costs the
  // process up to two areas. False: this memory can't be watched. Throws std::bad_alloc.
  bool watch(uint64_t start, uint64_t end, uint64_t area_start, uint64_t area_end);
  // There are so many ranges that more than asked for is watched.
  bool watches_blocks() const { return ranges_.size() > kExactRanges; }
  // No longer, as far as it is watched: before pages of it are moved by us. Throws std::bad_alloc.
  void unwatch(uint64_t start, uint64_t end);
  // It is no longer mapped. Throws std::bad_alloc.
  void forget(uint64_t start, uint64_t end);
  // What was moved there is still watched, by the kernel only.
  void unwatch_moved(uint64_t start, uint64_t end) const;
  // Whether the end of any part of [start, end) is reported.
  bool covers(uint64_t start, uint64_t end);
  // The first watched range that ends behind `va`. False: there is none.
  bool next_range(uint64_t va, uint64_t& start, uint64_t& end);

  // In a forked child.
  void forget_parent();

 private:
  static constexpr size_t kExactRanges = 512;

  void run();
  bool waits_for_events();
  bool report_is_due() const;
  bool read_events();

  Revoker* revoker_ = nullptr;
  int fd_ = -1;
  std::atomic<bool> reports_{false};  // the thread runs
  RangeTable ranges_;                 // what the kernel watches; counts and places unused
  char error_[160] = "not started yet";
};

}  // namespace hostnic::memory
