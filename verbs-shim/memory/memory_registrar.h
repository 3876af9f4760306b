// SPDX-License-Identifier: BSD-3-Clause
// Registration of this process's memory with hostnicd's NICs: finds for every page the fastest way
// by which hostnicd can reach it, and brings it there.
//
//   private anonymous memory    migrated into the mirror, a file that hostnicd maps too
//   shared memory (tmpfs)       hostnicd maps the same file
//   anything else               hostnicd reads and writes through our /proc/self/mem descriptor
//
// Runs inside foreign programs: throws nothing, takes no lock of the application's allocator while
// it holds its own, and works from any thread.
//
// Environment: HOSTNIC_MEMORY=auto|memfd|window|file chooses the way (auto), where `window` and
// `file` fail instead of taking the mem fd; HOSTNIC_MIGRATE=0 leaves private memory in place,
// HOSTNIC_MIGRATE=now copies it before a registration returns, and HOSTNIC_MIGRATE=at-once brings
// all of it home when it is deregistered.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "protocol/expected.h"
#include "protocol/hostif/memory_region.h"
#include "protocol/hostif/unique_fd.h"
#include "verbs-shim/memory/areas.h"
#include "verbs-shim/memory/late_fill.h"
#include "verbs-shim/memory/mapping_watch.h"
#include "verbs-shim/memory/migration.h"
#include "verbs-shim/memory/range_table.h"
#include "verbs-shim/memory/revoker.h"
#include "verbs-shim/memory/userfault.h"

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
  // Whom shared memory is kept for, for remove() and tell_pins(); 0: none is.
  uint64_t pinned = 0;
  // The member must live until hostnicd has answered.
  Revoker::Registering registering;
};

// An Error as it is passed around in the critical section, where nothing may allocate.
struct Failure {
  int error = 0;  // 0: none
  char text[256] = {};
  explicit operator bool() const { return error != 0; }
};
[[gnu::format(printf, 2, 3)]] Failure failure(int error, const char* format, ...);

enum class MemoryMode { kAuto, kMemFd, kMirror, kFile };

// Which memory a registration means: what is mapped when it is made, or, on demand, what is mapped
// when it is accessed. What is mapped when it is accessed only the mem fd can tell, whatever
// HOSTNIC_MEMORY says.
enum class Paging : uint8_t { kAsMapped, kOnDemand };

// When a registration's pages have to be where hostnicd reaches them: some time after it has
// returned, or before.
enum class Arrival : uint8_t { kMayBeLate, kNow };

// Makes the pages of [va, va + length_bytes) present. Returns EFAULT if not all of it is mapped, or
// not for such an access. Succeeds without doing anything where the kernel can't (before Linux
// 5.14).
int prefetch(uint64_t va, uint64_t length_bytes, bool for_writing);

struct MemoryCounters {
  // The bytes registered since the start, by the way they are reached.
  uint64_t mirror_bytes = 0, file_bytes = 0, mem_fd_bytes = 0;
  uint64_t in_mirror_bytes = 0;  // bytes migrated now
  uint64_t parked_bytes = 0;     // bytes of them that are registered by nobody
  uint64_t migrations = 0;
};

class MemoryRegistrar {
 public:
  // The registrar of this process. It is never destroyed: interposed calls come after destructors,
  // too.
  static MemoryRegistrar& process();
  MemoryRegistrar(const MemoryRegistrar&) = delete;
  MemoryRegistrar& operator=(const MemoryRegistrar&) = delete;

  // Opens /proc/self/mem and pagemap, also after the program changed its user; init() does
  // otherwise. For any thread.
  void open_own_memory();
  // The descriptor for hostnicd's mem fd transfers, or -1. It is valid until fork.
  int mem_fd() const { return mem_fd_.load(std::memory_order_acquire); }
  // The mirror, to hand to further contexts' connections, or -1. It is valid until fork.
  int mirror_fd() const { return mirror_fd_.load(std::memory_order_acquire); }

  // Called before the first add(). `mirror_fd` comes from hostnicd and is duplicated; -1 means
  // there is none. Further calls with the same file change nothing. Fails with EBUSY when another
  // mirror is in use, EINVAL for a bad environment variable, or the reason why no way at all works.
  Expected<void, Error> init(int mirror_fd);
  // Does what init() does as well: forked children find the registrar whole. For any thread.
  void watch_forks();
  // Takes a descriptor of /dev/userfaultfd that hostnicd lent us; the caller keeps it.
  void set_lent_userfaultfd(int device_fd);

  // Attach and detach devices, which must learn when memory goes away that they may reach by the
  // mem fd.
  void attach(RegionUser& user) { revoker_.attach(user); }
  void detach(RegionUser& user) { revoker_.detach(user); }
  // Called by each thread of ours before it does anything else, and before it ends: they don't
  // count when a process has no other threads.
  void own_thread_starts();
  void own_thread_ends();

  // Registers [va, va + length_bytes), again and overlapping as one likes. Fails with EINVAL: empty
  // or wraps around; EFAULT: not mapped, not readable, or not writable though `need_write`; ENOMEM;
  // other errno values when no way works. May take long (about 1 s per GiB); other threads may use
  // the memory meanwhile. On demand, what is not mapped, or reserved with PROT_NONE, is no error.
  Expected<Registration, Error> add(uint64_t va, uint64_t length_bytes, bool need_write,
                                    Paging paging = Paging::kAsMapped,
                                    Arrival arrival = Arrival::kMayBeLate);
  // Describes a registration that hostnicd refused as one that the mem fd reaches. Returns false if
  // it is one already, or has to be reached in another way.
  bool fall_back(uint64_t va, uint64_t length_bytes, Registration& registration);
  // Has the devices reach shared memory where it is kept (shared_pins.cc), after hostnicd has
  // answered and before the registration is anybody's.
  void tell_pins(Registration& registration);
  // Undoes one add() of the same range, after hostnicd said that it no longer uses the memory.
  // `pinned` is that registration's.
  void remove(uint64_t va, uint64_t length_bytes, uint64_t pinned = 0);
  // Makes huge pages of 2 MiB and more; optional, after hostnicd answered the registration. This
  // takes long; for any thread.
  void after_registration(uint64_t va, uint64_t length_bytes);
  // Whether a part of a registered range is not known to be filled: it was described as
  // kMirrorLate. For any thread, without a lock.
  bool fills_late(uint64_t va, uint64_t length_bytes) const {
    return late_.any_aside(va, va + length_bytes);
  }
  // Returns when what [va, va + length_bytes) has of pages that come late is there. For datagrams
  // and UC's messages: what finds no page is lost, and nobody sends it again.
  void bring(uint64_t va, uint64_t length_bytes) {
    if (LateFill::anything_aside()) bring_late(va, length_bytes);
  }
  // Returns when all pages are there; from now on none comes late. For UC's WRITEs, which may go
  // anywhere.
  void bring_all();
  // Has the attached devices asked anew whether what they have registered is filled: some of it may
  // have been before they knew of it.
  void look_for_filled() { revoker_.memory_filled(); }

  // Whether the end of private mappings of files is noticed, whoever unmaps them. For tests.
  bool watches_any_memory() const { return watch_.takes_any_memory(); }

  // For tests that look at what lies aside; before the first add().
  void copy_only_wanted() { late_.copy_only_wanted(); }

  MemoryCounters counters();
  // Says in one line how memory is reached, or why the fast way does not work.
  std::string status();
  void set_fork_init() { skip_copy_in_child_.store(true); }

  // Whether memory in the table may be concerned, for interpose.cc. This works before constructors.
  static bool concerns(uint64_t start, uint64_t length_bytes) {
    return start < highest_.load(std::memory_order_relaxed) &&
           start + length_bytes > lowest_.load(std::memory_order_relaxed);
  }
  // These do libc's calls with our bookkeeping, where memory may be concerned.
  int munmap(void* at, size_t length_bytes);
  void* mmap_fixed(void* at, size_t length_bytes, int prot, int flags, int fd, off_t offset);
  int madvise(void* at, size_t length_bytes, int advice);
  void* mremap(void* from, size_t old_length, size_t length, int flags, void* to);
  // Does `reallocate`, libc's own realloc, to a block that is a mapping of libc's: it moves there
  // by a bare mremap.
  void* realloc_mapping(void* block, size_t usable_bytes, size_t length,
                        void* (*reallocate)(void*, size_t));
  // Does `fork`, which calls no handlers, with those of the registrar, if it has any memory.
  static pid_t fork_without_handlers(pid_t (*fork)());

 private:
  class Critical;
  struct Request;
  struct Described;

  // Functions in memory_registrar.cc.
  Failure init_locked(int mirror_fd);
  Failure take_mirror(int mirror_fd);
  Failure read_environment();
  static Failure check_access(const Request& request);
  Failure add_once(Request& request, Described& described);
  int start_threads();
  void start_late_fill();
  Failure add_locked(Request& request, Described& described);
  bool migration_enabled() const {
    return migration_wanted_ && (mode_ == MemoryMode::kAuto || mode_ == MemoryMode::kMirror);
  }
  void open_own_memory_locked();
  bool can_migrate() const;
  void set_reason(const char* format, ...) __attribute__((format(printf, 2, 3)));

  // Functions in placement.cc: where pages go.
  void pin(Request& request);
  void pin_on_demand(Request& request);
  void pin_area(Request& request, const Area& area, uint64_t start, uint64_t end);
  void pin_new(Request& request, const Area& area, uint64_t start, uint64_t end);
  void bring_late(uint64_t va, uint64_t length_bytes);
  void migrate(Request& request, const Area& area, uint64_t start, uint64_t end);
  void migrate_now(Request& request, const Area& area, uint64_t start, uint64_t end);
  bool migrate_late(Request& request, const Area& area, uint64_t start, uint64_t end);
  void reserve_for_migration();
  void migrated(Request& request, uint64_t start, const PageRange& range);
  bool too_many_areas();
  bool may_migrate(Request& request, const Area& area);
  bool may_migrate_now(Request& request);
  Failure describe(const Request& request, Described& described);
  Failure describe_part(const Request& request, const Area& area, PagePlace place, uint64_t start,
                        uint64_t end, Described& described);
  Failure describe_mirror(const Request& request, const Area& area, uint64_t start, uint64_t end,
                          Described& described);
  Failure describe_filled(const Request& request, const Area& area, uint64_t start, uint64_t end,
                          Described& described);
  bool find_fill_map(Described& described, uint32_t& index) const;
  bool describe_file(const Request& request, const Area& area, uint64_t start, uint64_t end,
                     Described& described);

  void watch(const Described& described);
  void watch_unpinned(const RawVector<Area>& areas, uint64_t start, uint64_t end);
  void watch_range(const RawVector<Area>& areas, uint64_t start, uint64_t end);
  // Whether nobody else can notice that pages change place.
  bool may_move_pages() const;

  // Functions in page_release.cc: where pages come back, or are taken away.
  void unpin(uint64_t start, uint64_t end);
  bool is_large(uint64_t start, uint64_t end) const;
  bool park(uint64_t start, uint64_t end);
  enum class Unpark { kSome, kAll };
  void unpark(Unpark what);
  bool bring_aside_home(uint64_t start, uint64_t end);
  void note_growth(uint64_t& from, uint64_t& to);
  void unwatch_unused(uint64_t start, uint64_t end);
  // Moves a migrated range home. Returns false if it stays in the mirror.
  bool return_home(uint64_t start, const PageRange& range);
  void lose(uint64_t start, uint64_t end);
  bool goes_untold(uint64_t start, uint64_t end);
  void follow(const MemoryChange& change);
  void lose_unmapped(uint64_t start, uint64_t end);  // called without the lock
  void lose_where_gone(uint64_t start, uint64_t end);
  bool is_mirror(const Area& area) const;
  bool is_of_mirror(const Area& area) const;  // also what the program has moved
  FileRange mirror_range(uint64_t start, uint64_t end) const;
  void punch_unseen(uint64_t start, uint64_t end);
  void keep_grown(uint64_t start, uint64_t end);
  void free_lost();
  void update_bounds();

  // Functions in shared_pins.cc.
  void pin_shared(const Area& area, uint64_t start, uint64_t end, Described& described);
  bool is_pinned(const Described& described, uint64_t start, uint64_t end) const;
  void unpin_shared(uint64_t place);
  void release_pins(uint64_t pinned);

  // Functions in discards.cc, called without the lock.
  void before_discard(uint64_t start, uint64_t end, int mirror);
  void discard_in_mirror(uint64_t start, uint64_t end, int mirror);

  // Functions in bare_moves.cc, called without the lock: what calls past the library do to pages of
  // the mirror, before these calls return.
  void settle(const BlockedCall& call, EventReader reader);
  void settle_move(const MoveCall& move, const EventReader& reader);
  bool find_moved(const MoveCall& move, uint64_t& to, Area& area, TextRoom& room) const;
  bool take_home(const MoveCall& move, uint64_t to, const Area& area, const EventReader& reader,
                 TextRoom& room);
  bool take_outside_in_time(uint64_t start, uint64_t end);
  void make_private(uint64_t start, uint64_t end, uint64_t offset, const EventReader& reader,
                    TextRoom& room);
  void guard_gap(uint64_t start, const EventReader& reader);

  // Functions in moved_memory.cc: what the program moved while a key leads to it.
  void note_move(uint64_t from, uint64_t to, uint64_t length_bytes);
  void hold(uint64_t start, uint64_t end);
  void come_back(uint64_t start, uint64_t end);
  void drop_moves(uint64_t start, uint64_t end);
  void drop_moves_to(uint64_t start, uint64_t end);
  bool any_registered(uint64_t start, uint64_t end);

  // Functions in system_calls.cc.
  class Change;
  bool begin_change(Change& change, uint64_t start, uint64_t end);
  void mark_outside(uint64_t start, uint64_t end, RawVector<MappingChange>& leaving);
  bool tell_outside(const RawVector<MappingChange>& leaving);
  bool take_outside(uint64_t start, uint64_t end);
  bool prepare_move(Change& change, uint64_t start, uint64_t end);
  void prepare_replacement(Change& change, uint64_t start, uint64_t end);
  bool bring_home(uint64_t start, uint64_t end);
  void watch_again(uint64_t start, uint64_t end);
  void watch_left_behind(uint64_t start, uint64_t end);
  bool in_table(uint64_t start, uint64_t end);
  bool in_mirror(uint64_t start, uint64_t end);
  int madvise_part(uint64_t start, uint64_t end, int advice, bool in_mirror, uint64_t stash_delta);

  // Functions in fork.cc.
  void copy_for_child();
  void copy_for_child(const Area& area);
  void copy_grown_for_child(const Area& area, uint64_t start, uint64_t end);
  void end_fork();
  static void install_fork_handlers();
  void before_fork();
  void after_fork_in_parent();
  void after_fork_in_child();
  void forget_parent();

  MemoryRegistrar() = default;

  // Everything in the table lies between these addresses.
  static inline constinit std::atomic<uint64_t> lowest_{UINT64_MAX}, highest_{0};

  std::mutex mutex_;
  RangeTable table_;
  Userfault userfault_;
  Migrator migrator_;
  LateFill late_;
  MappingWatch watch_;         // of what the mem fd reaches
  MappingWatch mirror_watch_;  // of what is in the mirror
  Revoker revoker_;
  std::mutex threads_mutex_;  // held while threads start; before mutex_
  RawVector<pid_t> own_threads_;
  RawVector<Area> areas_of_losses_;  // has room from the start
  std::atomic<int> mem_fd_{-1}, mirror_fd_{-1};
  int pagemap_fd_ = -1, lent_device_fd_ = -1;
  uint32_t mirror_major_ = 0, mirror_minor_ = 0;
  uint64_t mirror_inode_ = 0;
  bool parked_ = false;      // something in the mirror may be registered by nobody
  bool wants_home_ = false;  // some of that could not come home when it was deregistered
  bool handles_forks_ = false, environment_read_ = false, migration_wanted_ = true;
  bool comes_home_at_once_ = false;  // HOSTNIC_MIGRATE=at-once
  bool late_wanted_ = true;          // no HOSTNIC_MIGRATE
  MemoryMode mode_ = MemoryMode::kAuto;
  int mem_error_ = 0;
  size_t max_areas_ = 0;  // number of areas beyond which nothing migrates
  size_t areas_counted_ = 0, adds_since_count_ = 0;
  MemoryCounters counters_;
  char reason_[200] = {};  // why private memory was last not migrated
  std::atomic<bool> skip_copy_in_child_{false};
  // While a fork is under way: copies that the child inherits, and where they belong.
  struct Snapshot {
    uint64_t start = 0, end = 0;
    uint64_t copy = 0;
    bool shifted = false;
  };
  RawVector<Snapshot> snapshots_;
  // Memory that a key leads to and that the program moved. It counts in the table at both places.
  struct MovedMemory {
    uint64_t from = 0;  // where it was registered
    uint64_t to = 0;    // where it is now
    uint64_t length_bytes = 0;
  };
  RawVector<MovedMemory> moved_, moving_;  // have room from the start
  // Shared memory that is kept in a mapping of our own.
  struct SharedPin {
    uint64_t start = 0, end = 0;  // where the program had it
    uint64_t place = 0;           // where the mapping is
    uint64_t offset = 0;
    uint32_t device_major = 0, device_minor = 0;
    uint64_t inode = 0;
    int prot = 0;
    uint32_t users = 0;
  };
  struct PinUse {
    uint64_t pinned = 0, place = 0;
  };
  RawVector<SharedPin> pins_;
  RawVector<PinUse> pin_uses_;
  uint64_t last_pinned_ = 0;
  std::atomic<uint32_t> guards_{0};  // pages that guard_gap() has put
  bool lost_in_use_ = false;  // pages of the mirror that nobody registered are seen at other places
  sigset_t fork_signals_ = {};
  int fork_cancel_state_ = 0;
};

}  // namespace hostnic::memory
