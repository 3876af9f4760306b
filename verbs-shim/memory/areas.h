// SPDX-License-Identifier: BSD-3-Clause
// What is mapped where in this process, from /proc/self/maps.
#pragma once

#include <cstdint>
#include <cstring>

#include "verbs-shim/memory/raw_memory.h"

namespace hostnic::memory {

struct Area {
  uint64_t start = 0, end = 0;
  int prot = 0;  // PROT_READ | PROT_WRITE | PROT_EXEC
  bool shared = false;
  uint64_t offset = 0;  // offset in the file of `start`
  uint32_t device_major = 0, device_minor = 0;
  uint64_t inode = 0;        // 0: the area is anonymous
  bool above_guard = false;  // an area without access ends where this one starts
  bool locked = false;       // locked by mlock; filled only by mark_locked
  char path[256] = {};       // empty when too long

  bool same_file_as(uint32_t major, uint32_t minor, uint64_t number) const {
    return inode == number && device_major == major && device_minor == minor;
  }
  bool is_main_stack() const { return std::strncmp(path, "[stack", 6) == 0; }
};

// The text that is read from /proc; more than the longest line (a path has 4,096 bytes). Programs'
// threads have it on their stacks, and those of fibers are small.
struct TextRoom {
  static constexpr size_t kBytes = 5 * 1024;
  char text[kBytes];
};

// A part of a file: [start, end) of the file's bytes.
struct FileRange {
  uint32_t device_major = 0, device_minor = 0;
  uint64_t inode = 0, start = 0, end = 0;
};

// These take no lock: the room is the caller's own.

// Calls use(argument, area) for each area of the process until it returns false.
void visit_areas(TextRoom& room, bool (*use)(void*, const Area&), void* argument);
template <typename Use>
void for_each_area(TextRoom& room, Use use) {
  visit_areas(
      room, [](void* it, const Area& area) { return (*static_cast<Use*>(it))(area); }, &use);
}

// Finds the first area that ends behind `at`, without its name. Returns false if there is none, or
// the kernel does not tell. A mapping that is just being replaced is no gap.
bool next_area(uint64_t at, Area& area, TextRoom& room);
// The first address in [start, end) of which the memory is locked by mlock; `end`: none.
uint64_t first_locked(uint64_t start, uint64_t end, TextRoom& room);

// Finds the first shared mapping, of those that accept(area) says yes to, which shows the byte of a
// file at `range.start`. Returns false if there is none, or the kernel does not tell.
template <typename Accept>
bool find_view(const FileRange& range, TextRoom& room, Area& found, Accept accept) {
  bool any = false;
  for_each_area(room, [&](const Area& area) {
    any = area.shared && area.same_file_as(range.device_major, range.device_minor, range.inode) &&
          range.start - area.offset < area.end - area.start && accept(area);
    if (any) found = area;
    return !any;
  });
  return any;
}

// The functions below read /proc: one caller at a time, with the registrar's lock.

// Reads the areas overlapping [start, end), in order. Returns false with errno when the kernel does
// not tell. Throws std::bad_alloc. Other threads may map and unmap meanwhile: every use must cope
// with stale data. A mapping that is just being replaced is no gap.
bool read_areas(uint64_t start, uint64_t end, RawVector<Area>& areas);

// The two ways of read_areas: by PROCMAP_QUERY (Linux 6.11; EINVAL or ENOTTY before), whose cost
// does not depend on the number of areas, and by the text of /proc/self/maps.
bool query_areas(uint64_t start, uint64_t end, RawVector<Area>& areas);
bool parse_areas(uint64_t start, uint64_t end, RawVector<Area>& areas);

// Finds the first place from `at` on where a shared mapping shows a part of the range, at another
// address than the file's offset. Returns false if there is none; `known` says whether the kernel
// told. Needs no memory.
bool find_shifted(uint64_t at, const FileRange& range, Area& found, bool& known);

// Counts all areas of the process. This takes about 0.4 us for each.
size_t count_areas();

// Whether the process has set up the kernel's asynchronous I/O (io_setup). This reads all areas;
// returns true when the kernel does not tell.
bool has_aio_context();

// Parses one line of /proc/self/maps (without its newline). Returns false if it is not of that
// form.
bool parse_area(const char* line, size_t length, Area& area);

// Sets Area::locked from /proc/self/smaps, which is slow: only when the process has locked memory.
bool mark_locked(RawVector<Area>& areas);

// What /proc/self/status says of memory; 0 when unreadable.
struct ProcessMemory {
  uint64_t locked_kb = 0;  // mlock
  uint64_t pinned_kb = 0;  // pinned by a real RDMA adapter or io_uring: must keep its place
};
ProcessMemory process_memory();
ProcessMemory process_memory(TextRoom& room);  // without the lock

// The value of vm.max_map_count, or its default when unreadable.
size_t max_map_count();

}  // namespace hostnic::memory
