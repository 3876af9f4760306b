// SPDX-License-Identifier: BSD-3-Clause
// What the parts of the registrar share: the table of registered ranges, the ways by which pages
// are moved and watched, descriptors, and the registrar's lock, which protects all of it. Parts do
// not know each other but where a header says so.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "verbs-shim/memory/areas.h"
#include "verbs-shim/memory/late_fill.h"
#include "verbs-shim/memory/mapping_watch.h"
#include "verbs-shim/memory/migration.h"
#include "verbs-shim/memory/range_table.h"
#include "verbs-shim/memory/revoker.h"
#include "verbs-shim/memory/userfault.h"

namespace hostnic::memory {

// An Error as it is passed around in the critical section, where nothing may allocate.
struct Failure {
  int error = 0;  // 0: none
  char text[256] = {};
  explicit operator bool() const { return error != 0; }
};
[[gnu::format(printf, 2, 3)]] Failure failure(int error, const char* format, ...);

enum class MemoryMode { kAuto, kMemFd, kMirror, kFile };

struct MemoryCounters {
  // The bytes registered since the start, by the way they are reached.
  uint64_t mirror_bytes = 0, file_bytes = 0, mem_fd_bytes = 0;
  uint64_t in_mirror_bytes = 0;  // bytes migrated now
  uint64_t parked_bytes = 0;     // bytes of them that are registered by nobody
  uint64_t migrations = 0;
};

struct RegistrarState {
  bool migration_enabled() const {
    return migration_wanted && (mode == MemoryMode::kAuto || mode == MemoryMode::kMirror);
  }
  // Copying needs the mem fd and pagemap, too.
  bool can_migrate() const;
  // Remembers why private memory was not migrated.
  void set_reason(const char* format, ...) __attribute__((format(printf, 2, 3)));
  // Whether nobody else can notice that pages change place.
  bool may_move_pages() const;
  // Whether an area is a part of the mirror at its own address; or also what the program has moved.
  bool is_mirror(const Area& area) const;
  bool is_of_mirror(const Area& area) const;
  FileRange mirror_range(uint64_t start, uint64_t end) const;
  bool in_table(uint64_t start, uint64_t end);
  bool any_registered(uint64_t start, uint64_t end);
  // Has the end of what lies in [start, end) noticed, as far as the kernel can tell.
  void watch_range(const RawVector<Area>& areas, uint64_t start, uint64_t end);
  // Something else is seen at [start, end) than the views that moved there. Throws std::bad_alloc,
  // unless `moved_views` has room for one more.
  void forget_views(uint64_t start, uint64_t end);
  // To be called after each change of the table, or of `moved_views`.
  void update_bounds();

  // Everything in the table, and all moved views, lie between these addresses.
  static inline constinit std::atomic<uint64_t> lowest{UINT64_MAX}, highest{0};
  // Whether anything was ever migrated: what a bare mremap has grown in place is in the mirror and
  // not in the table, also when all that had migrated has come home.
  static inline constinit std::atomic<bool> has_migrated{false};

  std::mutex mutex;
  RangeTable table;
  Userfault userfault;
  Migrator migrator;
  LateFill late;
  MappingWatch watch;         // of what the mem fd reaches
  MappingWatch mirror_watch;  // of what is in the mirror
  Revoker revoker;
  uint64_t last_number = 0;  // of a registration
  // Counts the moves into the mirror when they begin, which end with the lock held.
  std::atomic<uint64_t> migrations_begun{0};
  RawVector<pid_t> own_threads;
  RawVector<Area> areas_of_losses;  // has room from the start
  // Where the program may see pages of the mirror at another address than theirs.
  struct View {
    uint64_t start = 0, end = 0;
    uint64_t offset = 0;  // what is at `start`
  };
  RawVector<View> moved_views;
  std::atomic<bool> has_moved_views{false};  // whether there were ever any
  std::atomic<int> mem_fd{-1}, mirror_fd{-1};
  int pagemap_fd = -1, lent_device_fd = -1;
  uint32_t mirror_major = 0, mirror_minor = 0;
  uint64_t mirror_inode = 0;
  bool parked = false;       // something in the mirror may be registered by nobody
  bool wants_home = false;   // some of that could not come home when it was deregistered
  bool lost_in_use = false;  // pages of the mirror that nobody registered are seen at other places
  bool migration_wanted = true;
  bool comes_home_at_once = false;  // HOSTNIC_MIGRATE=at-once
  bool late_wanted = true;          // no HOSTNIC_MIGRATE
  MemoryMode mode = MemoryMode::kAuto;
  int mem_error = 0;
  size_t max_areas = 0;  // number of areas beyond which nothing migrates
  MemoryCounters counters;
  char reason[200] = {};  // why private memory was last not migrated
};

}  // namespace hostnic::memory
