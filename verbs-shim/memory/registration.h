// SPDX-License-Identifier: BSD-3-Clause
// A registration: what is asked for, what it becomes on its way, and what is sent to hostnicd.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "protocol/hostif/memory_region.h"
#include "protocol/hostif/unique_fd.h"
#include "verbs-shim/memory/areas.h"
#include "verbs-shim/memory/revoker.h"

namespace hostnic::memory {

// An errno value, and one line that names the object and the remedy.
struct Error {
  int error = 0;
  std::string message;
};

// What is to be sent to hostnicd: `regions` cover the registration exactly, `fds` are for its kFile
// and kMirrorLate regions and may be closed once sent.
struct Registration {
  std::vector<MemoryRegion> regions;
  std::vector<UniqueFd> fds;
  // Counted from 1 in a process, for remove(): what is kept for whom.
  uint64_t number = 0;
  // The member must live until hostnicd has answered.
  Revoker::Registering registering;
};

// Which memory a registration means: what is mapped when it is made, or, on demand, what is mapped
// when it is accessed. What is mapped when it is accessed only the mem fd can tell, whatever
// HOSTNIC_MEMORY says.
enum class Paging : uint8_t { kAsMapped, kOnDemand };

// When a registration's pages have to be where hostnicd reaches them: some time after it has
// returned, or before.
enum class Arrival : uint8_t { kMayBeLate, kNow };

// What becomes of a page that a file has lost since: the kernel makes it anew, as for any mapping,
// or an access to it is refused. The latter is for files alone that hostnicd can map.
enum class LostPages : uint8_t { kMadeAnew, kRefused };

// An add() on its way.
struct Request {
  uint64_t va = 0, length_bytes = 0;
  bool need_write = false;
  Paging paging = Paging::kAsMapped;
  Arrival arrival = Arrival::kMayBeLate;
  LostPages lost_pages = LostPages::kMadeAnew;
  enum class Alone { kUnknown, kYes, kNo } alone = Alone::kUnknown;
  uint64_t first = 0, last = 0;  // its pages, head and tail included
  uint64_t pinned_end = 0;       // [first, pinned_end) counts in the table
  uint64_t number = 0;
  uint64_t stack_low = 0, stack_high = 0;  // what this thread's frames may occupy
  ProcessMemory process;
  RawVector<Area> areas;
};

// The parts of the Registration that an add() will return.
struct Described {
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
