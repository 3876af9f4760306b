// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/memory_registrar.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "verbs-shim/base/own_descriptors.h"
#include "verbs-shim/memory/critical.h"
#include "verbs-shim/memory/fork_handlers.h"
#include "verbs-shim/memory/fork_init.h"
#include "verbs-shim/memory/own_proc.h"
#include "verbs-shim/memory/own_variables.h"

namespace hostnic::memory {
namespace {

// The margin around the current frame within which frames of this thread lie that run during a
// migration.
constexpr uint64_t kStackMargin = 1 << 20;
constexpr uint64_t kHugePageBytes = 2 << 20;
constexpr size_t kAreasOfALoss = 500;
constexpr uint64_t kBordersOfLosses = 8;  // borders that a loss may add to the table and to the
                                          // watch

Failure check_access(const Request& request) {
  const bool on_demand = request.paging == Paging::kOnDemand;
  uint64_t at = request.first;
  const char* wrong = nullptr;
  for (const Area& area : request.areas) {
    if (on_demand) {
      at = std::max(at, area.start);
      if (area.prot == PROT_NONE) continue;
    }
    if (area.start > at) break;
    if ((area.prot & PROT_READ) == 0)
      wrong = "not readable";
    else if (request.need_write && (area.prot & PROT_WRITE) == 0)
      wrong = "not writable, so it can't be registered for writing";
    if (wrong != nullptr) break;
    at = area.end;
  }
  if (wrong == nullptr && at < request.last && !on_demand) wrong = "not mapped";
  if (wrong == nullptr) return {};
  return failure(EFAULT, "0x%llx is %s", static_cast<unsigned long long>(at), wrong);
}

}  // namespace

MemoryRegistrar& MemoryRegistrar::process() {
  alignas(MemoryRegistrar) static std::byte storage[sizeof(MemoryRegistrar)];
  static MemoryRegistrar& registrar = *new (storage) MemoryRegistrar;
  return registrar;
}

void set_fork_init() { MemoryRegistrar::process().set_fork_init(); }
void watch_forks() { MemoryRegistrar::process().watch_forks(); }

void MemoryRegistrar::open_own_memory() {
  find_own_variables();
  const Critical critical(state_);
  open_own_memory_locked();
}

void MemoryRegistrar::open_own_memory_locked() {
  if (state_.mem_fd >= 0 && state_.pagemap_fd >= 0) return;
  if (state_.mem_fd < 0) {
    const int opened = open_own_proc("mem", O_RDWR);
    state_.mem_fd = keep_copy(opened);
    state_.mem_error = state_.mem_fd < 0 ? errno : 0;
    close_own_proc(opened);
  }
  if (state_.pagemap_fd < 0) {
    const int opened = open_own_proc("pagemap", O_RDONLY);
    state_.pagemap_fd = keep_copy(opened);
    close_own_proc(opened);
  }
}

Failure MemoryRegistrar::read_environment() {
  if (environment_read_) return {};
  const char* mode = std::getenv("HOSTNIC_MEMORY");
  const std::string_view wanted = mode != nullptr ? mode : "auto";
  if (wanted == "auto")
    state_.mode = MemoryMode::kAuto;
  else if (wanted == "memfd")
    state_.mode = MemoryMode::kMemFd;
  else if (wanted == "window")
    state_.mode = MemoryMode::kMirror;
  else if (wanted == "file")
    state_.mode = MemoryMode::kFile;
  else
    return failure(EINVAL, "HOSTNIC_MEMORY=%.64s: use auto, memfd, window or file", mode);
  const char* migrate = std::getenv("HOSTNIC_MIGRATE");
  const std::string_view how = migrate != nullptr ? migrate : "";
  state_.migration_wanted = how != "0";
  state_.comes_home_at_once = how == "at-once";
  state_.late_wanted = how.empty();
  environment_read_ = true;
  return {};
}

Expected<void, Error> MemoryRegistrar::init(int mirror_fd) try {
  Failure failed;
  watch_forks();
  {
    const Critical critical(state_);
    failed = init_locked(mirror_fd);
  }
  if (failed) return Unexpected(Error{failed.error, failed.text});
  return {};
} catch (...) {
  return Unexpected(Error{ENOMEM, {}});
}

void MemoryRegistrar::watch_forks() {
  bool first = false;
  {
    const Critical critical(state_);
    first = !std::exchange(handles_forks_, true);
  }
  if (!first) return;
  add_fork_handlers({[] { process().forks_.before(); }, [] { process().forks_.after_in_parent(); },
                     [] { process().forget_parent(); }});
}

Failure MemoryRegistrar::init_locked(int mirror_fd) {
  if (Failure failed = read_environment()) return failed;
  open_own_memory_locked();
  keep_own_proc();
  if (mirror_fd >= 0)
    if (Failure failed = take_mirror(mirror_fd)) return failed;
  state_.max_areas = max_map_count() / 2;
  state_.areas_of_losses.reserve(kAreasOfALoss);
  moved_.reserve();
  kept_.reserve();
  if (state_.migration_enabled()) state_.userfault.open(-1);
  state_.userfault.use_pagemap(state_.pagemap_fd);
  state_.migrator.use({state_.mirror_fd, state_.mem_fd, state_.pagemap_fd, &state_.userfault});
  if (state_.mem_fd < 0)
    return failure(state_.mem_error,
                   "hostnicd can't reach this program's memory: /proc/self/mem: %s (is /proc "
                   "mounted?)",
                   std::strerror(state_.mem_error));
  return {};
}

Failure MemoryRegistrar::take_mirror(int mirror_fd) {
  struct stat file {};
  if (fstat(mirror_fd, &file) != 0) return failure(errno, "mirror from hostnicd: bad descriptor");
  if (state_.mirror_fd >= 0) {
    if (file.st_ino == state_.mirror_inode && major(file.st_dev) == state_.mirror_major &&
        minor(file.st_dev) == state_.mirror_minor)
      return {};
    // A hostnicd that was restarted brings a new one; the old one may go once nothing is in it.
    if (state_.parked && state_.may_move_pages()) release_.unpark(PageRelease::Unpark::kAll);
    large_moves_.bring_home(0, kMirrorBytes);
    if (!state_.table.empty() || state_.late.asides().any_aside(0, UINT64_MAX))
      return failure(EBUSY,
                     "hostnicd sent a second mirror while memory is registered in the first: "
                     "deregister all memory before opening a device of another hostnicd");
    state_.late.stop();  // its thread has the old one
    close_ours(state_.mirror_fd.exchange(-1));
  }
  const int own = keep_copy(mirror_fd);
  if (own < 0) return failure(errno, "mirror from hostnicd: %s", std::strerror(errno));
  state_.mirror_inode = file.st_ino;
  state_.mirror_major = major(file.st_dev);
  state_.mirror_minor = minor(file.st_dev);
  state_.mirror_fd = own;
  return {};
}

void MemoryRegistrar::set_lent_userfaultfd(int device_fd) {
  const Critical critical(state_);
  if (state_.migration_enabled()) state_.userfault.open(device_fd);
  if (state_.lent_device_fd < 0) state_.lent_device_fd = keep_copy(device_fd);
}

Expected<Registration, Error> MemoryRegistrar::add(uint64_t va, uint64_t length_bytes,
                                                   bool need_write, Paging paging, Arrival arrival,
                                                   LostPages lost_pages) try {
  if (length_bytes == 0) return Unexpected(Error{EINVAL, "memory region: length is 0"});
  if (va + length_bytes < va || page_up(va + length_bytes) < va)
    return Unexpected(Error{EINVAL, "memory region: address + length wraps around"});
  if (OwnProcess::is_bare_child())
    return Unexpected(Error{EOPNOTSUPP, std::string("memory region: ") + kBareChild});
  const uint64_t frame = address(__builtin_frame_address(0));
  Request request;
  request.va = va;
  request.length_bytes = length_bytes;
  request.need_write = need_write;
  request.paging = paging;
  request.arrival = arrival;
  request.lost_pages = lost_pages;
  request.first = request.pinned_end = page_down(va);
  request.last = page_up(va + length_bytes);
  request.stack_low = page_down(frame - kStackMargin);
  request.stack_high = page_up(frame + kStackMargin);
  Registration registration;
  if (length_bytes >= kLateBytes && paging == Paging::kAsMapped && arrival == Arrival::kMayBeLate)
    start_late_fill();
  if (paging == Paging::kAsMapped)
    if (const int error = start_threads(); error != 0)
      return Unexpected(
          Error{error, std::string("no thread can be started: ") + std::strerror(error)});
  state_.watch.wait_for_reports();
  state_.mirror_watch.wait_for_reports();
  registration.registering = Revoker::Registering(state_.revoker);
  Described described;
  Failure failed = add_once(request, described);
  if (failed) {
    char range[64];
    std::snprintf(range, sizeof(range),
                  "memory region 0x%llx+%llu: ", static_cast<unsigned long long>(va),
                  static_cast<unsigned long long>(length_bytes));
    return Unexpected(Error{failed.error, std::string(range) + failed.text});
  }
  registration.regions.assign(described.regions.begin(), described.regions.end());
  for (auto& file : described.files) registration.fds.push_back(std::move(file.fd));
  registration.number = request.number;
  return registration;
} catch (...) {
  return Unexpected(Error{ENOMEM, {}});
}

Failure MemoryRegistrar::add_once(Request& request, Described& described) {
  const Critical critical(state_);
  Failure failed;
  try {
    failed = add_locked(request, described);
  } catch (const std::bad_alloc&) {
    failed = failure(ENOMEM, "out of memory");
  }
  if (failed) {
    pins_.let_go_all(described);
    release_.unpin(request.first, request.pinned_end);
  }
  return failed;
}

// Each registration needs them: whatever it registers may move one day, in a call of the program's
// in which no thread can be started. This does not run under the registrar's mutex, because
// starting a thread allocates. Without the watch, interposed calls are noticed all the same.
int MemoryRegistrar::start_threads() {
  const std::lock_guard lock(threads_mutex_);
  if (const int error = state_.revoker.start(
          [](const MemoryChange& change) { process().release_.follow(change); });
      error != 0)
    return error;
  state_.watch.start(state_.revoker, "hostnic-watch");
  if (state_.mirror_fd >= 0 && state_.migration_wanted)
    state_.mirror_watch.start(state_.revoker, "hostnic-discard",
                              [](const BlockedCall& call, const EventReader& reader) {
                                return process().bare_calls_.settle(call, reader);
                              });
  return 0;
}

// This does not run under the registrar's mutex either. Where it fails everything is copied before
// a registration returns.
void MemoryRegistrar::start_late_fill() {
  LateFill::Descriptors descriptors;
  {
    const Critical critical(state_);
    if (!state_.late_wanted || state_.late.runs() || !state_.can_migrate() ||
        !state_.userfault.moves_pages() || state_.userfault.mode() != UserfaultMode::kFull)
      return;
    descriptors = {state_.mirror_fd, state_.pagemap_fd, state_.lent_device_fd, -1};
  }
  if (start_threads() != 0) return;
  const std::lock_guard lock(threads_mutex_);
  descriptors.watch = state_.mirror_watch.fd();
  state_.late.start(
      descriptors, [] { process().look_for_filled(); },
      [](const BlockedCall& call, const EventReader& reader) {
        return process().bare_calls_.settle(call, reader);
      },
      [](uint64_t start, uint64_t end) { process().refuse(start, end); });
}

// Has keys lead where the program's own accesses go: to an error. For any thread.
void MemoryRegistrar::refuse(uint64_t start, uint64_t end) {
  const uint64_t change = state_.revoker.begin_change();
  const MappingChange part{{start, end - start, MemoryChangeKind::kOutside, 0, 0}, /*noted=*/true};
  state_.revoker.end_change(change, &part, 1);
}

void MemoryRegistrar::bring_late(uint64_t va, uint64_t length_bytes) {
  const uint64_t end = va + length_bytes;
  if (end < va || !state_.late.asides().any_unfilled(va, end)) return;
  const Critical critical(state_);
  state_.late.fill(va, end);
}

void MemoryRegistrar::bring_all() {
  const Critical critical(state_);
  state_.late_wanted = false;
  state_.late.fill(state_.lowest.load(), state_.highest.load());
}

void MemoryRegistrar::own_thread_starts() {
  const Critical critical(state_);
  state_.own_threads.push_back(static_cast<pid_t>(syscall(SYS_gettid)));
}

void MemoryRegistrar::own_thread_ends() {
  const Critical critical(state_);
  std::erase(state_.own_threads, static_cast<pid_t>(syscall(SYS_gettid)));
}

Failure MemoryRegistrar::add_locked(Request& request, Described& described) {
  if (state_.mem_fd < 0) return failure(EIO, "no device of hostnicd is open in this process");
  if (!read_areas(request.first, request.last, request.areas))
    return failure(errno, "/proc/self/maps: %s", std::strerror(errno));
  if (Failure denied = check_access(request)) return denied;
  // The mem fd fails at pages that lie aside.
  if (request.paging == Paging::kOnDemand || request.arrival == Arrival::kNow) {
    if (const int error = state_.late.fill(request.first, request.last); error != 0)
      return failure(error, "its pages can't be copied: %s", std::strerror(error));
  }
  if (request.paging == Paging::kOnDemand) {
    pinning_.pin_on_demand(request);
  } else {
    request.process = process_memory();
    if (request.process.locked_kb != 0) mark_locked(request.areas);
    pinning_.pin(request);
  }
  if (Failure failed = description_.describe(request, described)) return failed;
  if (request.paging == Paging::kAsMapped) {
    const bool by_mem_fd = std::ranges::any_of(described.regions, [](const MemoryRegion& region) {
      return region.kind == RegionKind::kMemFd;
    });
    if (by_mem_fd) description_.watch(described);
  }
  for (const MemoryRegion& region : described.regions) {
    uint64_t& counter = region.kind == RegionKind::kFile    ? state_.counters.file_bytes
                        : region.kind == RegionKind::kMemFd ? state_.counters.mem_fd_bytes
                                                            : state_.counters.mirror_bytes;
    counter += region.length_bytes;
  }
  request.number = ++state_.last_number;
  pins_.give(described, request.number);
  bare_calls_.guard_behind(request.first, request.last);
  state_.table.join(request.first, request.last);
  state_.table.reserve(kBordersOfLosses);
  state_.update_bounds();
  return {};
}

bool MemoryRegistrar::fall_back(uint64_t va, uint64_t length_bytes,
                                Registration& registration) try {
  const auto by_mem_fd = [](const MemoryRegion& each) { return each.kind == RegionKind::kMemFd; };
  if (state_.mode != MemoryMode::kAuto || std::ranges::all_of(registration.regions, by_mem_fd))
    return false;
  registration.regions.assign(1, {va, length_bytes, RegionKind::kMemFd, 0, 0});
  registration.fds.clear();
  Described described;
  described.regions.push_back(registration.regions.front());
  const Critical critical(state_);
  if (state_.late.fill(page_down(va), page_up(va + length_bytes)) != 0) return false;
  description_.watch(described);
  return true;
} catch (...) {
  return false;
}

void MemoryRegistrar::remove(uint64_t va, uint64_t length_bytes, uint64_t number) try {
  if (length_bytes == 0 || va + length_bytes < va) return;
  const uint64_t start = page_down(va), end = page_up(va + length_bytes);
  const Critical critical(state_);
  pins_.release(number);
  kept_.release(start, end, number);
  release_.unpin(start, end);
} catch (...) {
  // There is no memory to split a range: its pages stay where they are, which harms nobody.
}

void MemoryRegistrar::after_registration(uint64_t va, uint64_t length_bytes) try {
  // What came late while somebody waited has small pages: those of a gigabyte would take a second.
  if (state_.late.runs()) return;
  const uint64_t start = (va + kHugePageBytes - 1) & ~(kHugePageBytes - 1);
  const uint64_t end = (va + length_bytes) & ~(kHugePageBytes - 1);
  for (uint64_t at = start; at < end; at += kHugePageBytes) {
    bool migrated = false;
    {
      const Critical critical(state_);
      const auto range = state_.table.first_after(at);
      migrated = range != state_.table.end() && range->first <= at &&
                 range->second.end >= at + kHugePageBytes &&
                 range->second.place == PagePlace::kMirror;
    }
    if (!migrated) continue;
    // This is outside the critical section, because it takes a while. If the memory is deregistered
    // meanwhile it hits private memory, where it does no harm either. EAGAIN and EBUSY concern one
    // page.
    if (raw_madvise(pointer(at), kHugePageBytes, MADV_COLLAPSE) != 0 && errno != EAGAIN &&
        errno != EBUSY)
      return;
  }
} catch (...) {
}

MemoryCounters MemoryRegistrar::counters() {
  const Critical critical(state_);
  MemoryCounters counters = state_.counters;
  for (const auto& [start, range] : state_.table)
    if (range.place == PagePlace::kMirror && range.registrations == 0)
      counters.parked_bytes += range.end - start;
  return counters;
}

std::string MemoryRegistrar::status() {
  char why_not[200] = {}, exception[sizeof(state_.reason)] = {}, watch_failed[200] = {};
  UserfaultMode userfault = UserfaultMode::kNone;
  {
    const Critical critical(state_);
    userfault = state_.userfault.mode();
    std::memcpy(exception, state_.reason, sizeof(state_.reason));
    if (state_.revoker.runs() && !state_.watch.runs())
      std::snprintf(watch_failed, sizeof(watch_failed), "%s", state_.watch.error());
    const char* reason = !state_.migration_enabled()
                             ? "migration is switched off (HOSTNIC_MEMORY or "
                               "HOSTNIC_MIGRATE)"
                         : state_.mirror_fd < 0  ? "no mirror from hostnicd"
                         : state_.pagemap_fd < 0 ? "/proc/self/pagemap can't be opened"
                                                 : state_.userfault.error();
    if (!state_.can_migrate()) std::snprintf(why_not, sizeof(why_not), "%s", reason);
  }
  if (why_not[0] != '\0') return std::string("private memory through the mem fd: ") + why_not;
  std::string line =
      userfault == UserfaultMode::kFull
          ? "private memory migrates"
          : "private memory migrates while the program has no thread but one (userfaultfd is for "
            "user mode only)";
  if (watch_failed[0] != '\0')
    line += std::string("; unmapped memory is noticed by interposition only: ") + watch_failed;
  if (exception[0] != '\0') line += std::string("; last exception: ") + exception;
  return line;
}

pid_t MemoryRegistrar::fork_without_handlers(pid_t (*fork)()) {
  // Where a device was ever open the child has to forget its parent's descriptors.
  const bool has_any = OwnProcess::is_known() ||
                       RegistrarState::highest.load(std::memory_order_relaxed) != 0 ||
                       RegistrarState::has_migrated.load();
  if (!has_any || OwnProcess::is_bare_child()) return fork();
  process().forks_.before();
  const pid_t child = fork();
  child == 0 ? process().forget_parent() : process().forks_.after_in_parent();
  return child;
}

// The child's registrar begins anew.
void MemoryRegistrar::forget_parent() {
  new (&threads_mutex_) std::mutex;
  environment_read_ = false;
  bare_calls_.guards().forget(0, UINT64_MAX);  // they are not inherited
  bare_calls_.settled_discard().forget();      // its thread is the parent's
  forks_.after_in_child();
}

}  // namespace hostnic::memory
