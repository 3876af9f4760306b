// SPDX-License-Identifier: BSD-3-Clause
// The registrar's critical section. Signals wait: a handler on this thread might touch a page that
// is being moved, or call munmap, which takes the same mutex. Cancellation waits as well: munmap
// and its kind are no cancellation points, and what they do here opens and reads files.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <mutex>

#include "verbs-shim/base/cancellation.h"
#include "verbs-shim/memory/memory_registrar.h"

namespace hostnic::memory {

// Registrations of at least so many bytes leave their pages in the mirror when they end: to copy
// them back takes a second per gigabyte. It is the size of the heaps in which the C library gives
// threads their memory. What lies in these has to come home: the library empties parts of them by
// bare system calls (MADV_DONTNEED), and relies on zeros there.
inline constexpr uint64_t kLargeBytes = 64 << 20;

class MemoryRegistrar::Critical {
 public:
  explicit Critical(MemoryRegistrar& registrar) : mutex_(registrar.mutex_) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &signals_);
    mutex_.lock();
  }
  ~Critical() {
    mutex_.unlock();
    pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
  }
  Critical(const Critical&) = delete;
  Critical& operator=(const Critical&) = delete;

 private:
  CancellationOff cancellation_off_;
  std::mutex& mutex_;
  sigset_t signals_;
};

// An add() on its way.
struct MemoryRegistrar::Request {
  uint64_t va = 0, length_bytes = 0;
  bool need_write = false;
  Paging paging = Paging::kAsMapped;
  Arrival arrival = Arrival::kMayBeLate;
  enum class Alone { kUnknown, kYes, kNo } alone = Alone::kUnknown;
  uint64_t first = 0, last = 0;            // its pages, head and tail included
  uint64_t pinned_end = 0;                 // [first, pinned_end) counts in the table
  uint64_t pinned = 0;                     // the number of what is kept for it
  uint64_t stack_low = 0, stack_high = 0;  // what this thread's frames may occupy
  ProcessMemory process;
  RawVector<Area> areas;
};

// The parts of the Registration that an add() will return.
struct MemoryRegistrar::Described {
  struct File {
    UniqueFd fd;
    uint32_t device_major = 0, device_minor = 0;
    uint64_t inode = 0, size_bytes = 0;
    bool writable = false;
    bool is_fill_map = false;
  };
  RawVector<MemoryRegion> regions;
  RawVector<File> files;
  RawVector<uint64_t> pins;  // places in pins_
};

}  // namespace hostnic::memory
