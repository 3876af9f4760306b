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

#include <sys/types.h>

#include <cstdint>
#include <mutex>
#include <string>

#include "protocol/expected.h"
#include "verbs-shim/memory/bare_calls.h"
#include "verbs-shim/memory/description.h"
#include "verbs-shim/memory/forks.h"
#include "verbs-shim/memory/guards.h"
#include "verbs-shim/memory/kept_memory.h"
#include "verbs-shim/memory/large_moves.h"
#include "verbs-shim/memory/moved_memory.h"
#include "verbs-shim/memory/own_process.h"
#include "verbs-shim/memory/page_release.h"
#include "verbs-shim/memory/pinning.h"
#include "verbs-shim/memory/prefetch.h"
#include "verbs-shim/memory/registrar_state.h"
#include "verbs-shim/memory/registration.h"
#include "verbs-shim/memory/shared_pins.h"
#include "verbs-shim/memory/system_calls.h"

namespace hostnic::memory {

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
  int mem_fd() const { return state_.mem_fd.load(std::memory_order_acquire); }
  // The mirror, to hand to further contexts' connections, or -1. It is valid until fork.
  int mirror_fd() const { return state_.mirror_fd.load(std::memory_order_acquire); }

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
  void attach(RegionUser& user) { state_.revoker.attach(user); }
  void detach(RegionUser& user) { state_.revoker.detach(user); }
  // Called by each thread of ours before it does anything else, and before it ends: they don't
  // count when a process has no other threads.
  void own_thread_starts();
  void own_thread_ends();

  // Registers [va, va + length_bytes), again and overlapping as one likes. Fails with EINVAL: empty
  // or wraps around; EFAULT: not mapped, not readable, or not writable though `need_write`; ENOMEM;
  // other errno values when no way works. May take long (about 1 s per GiB); other threads may use
  // the memory meanwhile. On demand, what is not mapped, or reserved with PROT_NONE, is no error.
  // EOPNOTSUPP: lost pages are to be refused, of what is no file that hostnicd maps.
  Expected<Registration, Error> add(uint64_t va, uint64_t length_bytes, bool need_write,
                                    Paging paging = Paging::kAsMapped,
                                    Arrival arrival = Arrival::kMayBeLate,
                                    LostPages lost_pages = LostPages::kMadeAnew);
  // Describes a registration that hostnicd refused as one that the mem fd reaches. Returns false if
  // it is one already, or has to be reached in another way.
  bool fall_back(uint64_t va, uint64_t length_bytes, Registration& registration);
  // Has the devices reach shared memory where it is kept (shared_pins.cc), after hostnicd has
  // answered and before the registration is anybody's.
  void tell_pins(Registration& registration) { pins_.tell(registration); }
  // Undoes one add() of the same range, after hostnicd said that it no longer uses the memory.
  // `number` is that registration's.
  void remove(uint64_t va, uint64_t length_bytes, uint64_t number);
  // Makes huge pages of 2 MiB and more; optional, after hostnicd answered the registration. This
  // takes long; for any thread.
  void after_registration(uint64_t va, uint64_t length_bytes);
  // Whether a part of a registered range is not known to be filled: it was described as
  // kMirrorLate. For any thread, without a lock.
  bool fills_late(uint64_t va, uint64_t length_bytes) const {
    return state_.late.asides().any_aside(va, va + length_bytes);
  }
  // Returns when what [va, va + length_bytes) has of pages that come late is there. For datagrams
  // and UC's messages: what finds no page is lost, and nobody sends it again.
  void bring(uint64_t va, uint64_t length_bytes) {
    if (AsideTable::anything_aside()) bring_late(va, length_bytes);
  }
  // Returns when all pages are there; from now on none comes late. For UC's WRITEs, which may go
  // anywhere.
  void bring_all();
  // Has the attached devices asked anew whether what they have registered is filled: some of it may
  // have been before they knew of it.
  void look_for_filled() { state_.revoker.memory_filled(); }

  // Whether the end of private mappings of files is noticed, whoever unmaps them. For tests.
  bool watches_any_memory() const { return state_.watch.takes_any_memory(); }

  // For tests that look at what lies aside; before the first add().
  void copy_only_wanted() { state_.late.copy_only_wanted(); }

  MemoryCounters counters();
  // Says in one line how memory is reached, or why the fast way does not work.
  std::string status();
  void set_fork_init() { forks_.skip_copy(); }

  // Whether memory in the table may be concerned, for interpose.cc. This works before constructors.
  // A bare fork's child has no memory that is registered, and may find the lock taken for ever.
  static bool concerns(uint64_t start, uint64_t length_bytes) {
    return ((start < RegistrarState::highest.load(std::memory_order_relaxed) &&
             start + length_bytes > RegistrarState::lowest.load(std::memory_order_relaxed)) ||
            Revoker::anything_unknown()) &&
           !OwnProcess::is_bare_child();
  }
  // Whether anything may be in the mirror that the table does not have. Works before constructors.
  static bool may_have_grown() {
    return RegistrarState::has_migrated.load(std::memory_order_relaxed) &&
           !OwnProcess::is_bare_child();
  }
  // These do libc's calls with our bookkeeping, where memory may be concerned.
  SystemCalls& system_calls() { return system_calls_; }
  Guards& guards() { return bare_calls_.guards(); }
  // Does `fork`, which calls no handlers, with those of the registrar, if a device was ever open.
  static pid_t fork_without_handlers(pid_t (*fork)());

 private:
  Failure init_locked(int mirror_fd);
  Failure take_mirror(int mirror_fd);
  Failure read_environment();
  Failure add_once(Request& request, Described& described);
  Failure add_locked(Request& request, Described& described);
  int start_threads();
  void start_late_fill();
  void refuse(uint64_t start, uint64_t end);
  void open_own_memory_locked();
  void bring_late(uint64_t va, uint64_t length_bytes);
  void forget_parent();

  MemoryRegistrar() = default;

  RegistrarState state_;
  SharedPins pins_{state_};
  PageRelease release_{state_, moved_};
  MovedMemory moved_{state_, release_};
  KeptMemory kept_{state_, moved_};
  Pinning pinning_{state_, release_};
  Description description_{state_, pins_};
  BareCalls bare_calls_{state_, release_};
  LargeMoves large_moves_{state_, release_, bare_calls_.guards()};
  SystemCalls system_calls_{state_, release_, moved_, kept_, bare_calls_, large_moves_};
  Forks forks_{state_, release_, moved_, kept_, pins_, large_moves_};
  std::mutex threads_mutex_;  // held while threads start; before the registrar's lock
  bool handles_forks_ = false, environment_read_ = false;
};

}  // namespace hostnic::memory
