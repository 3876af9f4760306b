// SPDX-License-Identifier: BSD-3-Clause
// Advice and locks.
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "tests/apps/twin/executor.h"

namespace hostnic::twin {
namespace {

// Newer headers have these.
constexpr int kDontNeedLocked = 24;
constexpr int kCollapse = 25;
constexpr int kGuardInstall = 102, kGuardRemove = 103;
constexpr uint64_t kOtherLockedBytes = 400 << 20;
constexpr size_t kFewLockedPages = 256;  // of the 8 MiB that an ordinary user may lock

// Whether this kernel discards the caller's own memory by process_madvise (Linux 6.13).
bool takes_lists() {
  static const bool takes = [] {
    const int self = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
    const long result = syscall(SYS_process_madvise, self, nullptr, 0, MADV_DONTNEED, 0);
    close(self);
    return result == 0;
  }();
  return takes;
}

// Discards by process_madvise: some pages one by one, and the rest.
bool discard_by_list(uint64_t address, size_t length) {
  constexpr size_t kSingly = 3;
  iovec list[kSingly + 1];
  size_t count = 0;
  for (size_t at = 0; at < length; count++) {
    const size_t bytes = count < kSingly ? kPage : length - at;
    list[count] = {as_pointer(address + at), bytes};
    at += bytes;
  }
  const int self = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
  const long result = syscall(SYS_process_madvise, self, list, count, MADV_DONTNEED, 0);
  if (result >= 0) errno = EINVAL;  // the bytes before what failed are told instead of the error
  const int error = errno;
  close(self);
  errno = error;
  return result == static_cast<long>(length);
}

}  // namespace

// Whether this kernel makes guards of pages (Linux 6.13).
bool Executor::can_make_guards() {
  static const bool can = [] {
    void* const page =
        mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const bool made = madvise(page, kPage, kGuardInstall) == 0;
    munmap(page, kPage);
    return made;
  }();
  return can;
}

bool Executor::may_be_guard(const Page& page) {
  return is_plain(page) && page.object == nullptr && !page.locked && !is_busy(page);
}

// The first page of it that is locked: the kernel stops there.
std::optional<size_t> Executor::locked_at(const Range& range) {
  for (size_t i = 0; i < range.pages(); ++i)
    if (model.pages.at(range.first() + i).locked) return i;
  return std::nullopt;
}

void Executor::advise(int advice) {
  const auto range = pick_pages([&](const Page& page) {
    return is_plain(page) && !is_busy(page) && !page.beyond_end() &&
           (advice != MADV_FREE || page.object == nullptr) &&
           (advice != MADV_PAGEOUT || !page.lazy);
  });
  if (!range) return skip();
  say(" {:#x} ({:+}) {} pages", range->address, shown(range->first()), range->pages());
  const int result =
      timed([&] { return call_madvise(operation_.raw, range->address, range->length, advice); });
  const bool refused = advice == MADV_FREE && bare_call_failed(result != 0, EINVAL);
  if (!refused) expect(result == 0, locked_at(*range) ? EINVAL : 0, "madvise");
  if (advice == MADV_FREE)
    for (size_t i = 0; i < range->pages(); ++i) model.pages.at(range->first() + i).lazy = true;
  check_range(range->address, range->length);
}

void Executor::dont_need() {
  const auto range = pick_pages([](const Page& page) { return !page.huge && !is_busy(page); });
  if (!range) return skip();
  discard(*range);
}

void Executor::discard(const Range& range) {
  const bool by_list = random(4) % 8 == 0 && takes_lists();
  // Most of it is about locked memory, which the usual discard stops at.
  const bool of_locked = !by_list && (random(4) >> 8) % (locked_at(range) ? 2 : 8) == 0;
  say(" {:#x} ({:+}) {} pages{}", range.address, shown(range.first()), range.pages(),
      by_list     ? " by a list"
      : of_locked ? " locked or not"
                  : "");
  const std::optional<size_t> locked = of_locked ? std::nullopt : locked_at(range);
  const int advice = of_locked ? kDontNeedLocked : MADV_DONTNEED;
  const bool discarded = timed([&] {
    return by_list ? discard_by_list(range.address, range.length)
                   : call_madvise(operation_.raw, range.address, range.length, advice) == 0;
  });
  expect(discarded, locked ? EINVAL : 0, "madvise(MADV_DONTNEED)");
  for (size_t i = 0; i < locked.value_or(range.pages()); ++i)
    model.discard(model.pages.at(range.first() + i), range.first() + i);
  check_range(range.address, range.length);
}

// Pages that were guards are zeros. By a bare call guards keep the contents of what has migrated.
void Executor::make_guards() {
  const auto range = pick_pages(may_be_guard);
  if (!range || !can_make_guards()) return skip();
  guard(*range);
}

void Executor::guard(const Range& range) {
  say(" guards {:#x} ({:+}) {} pages", range.address, shown(range.first()), range.pages());
  const auto advise = [&](int advice) {
    return timed([&] { return madvise(as_pointer(range.address), range.length, advice); });
  };
  expect(advise(kGuardInstall) == 0, 0, "madvise(MADV_GUARD_INSTALL)");
  expect(advise(kGuardRemove) == 0, 0, "madvise(MADV_GUARD_REMOVE)");
  for (size_t i = 0; i < range.pages(); ++i)
    model.discard(model.pages.at(range.first() + i), range.first() + i);
  check_range(range.address, range.length);
}

void Executor::remove_pages() {
  const auto range = pick_pages([](const Page& page) {
    return page.shared && page.can_write() && !is_busy(page) && !page.object->immutable;
  });
  if (!range) return skip();
  const ObjectRef object = model.pages.at(range->first()).object;
  const std::optional<size_t> locked = locked_at(*range);
  const bool sealed = (object->seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0;
  say(" {:#x} ({:+}) {} pages", range->address, shown(range->first()), range->pages());
  const int result = timed(
      [&] { return call_madvise(operation_.raw, range->address, range->length, MADV_REMOVE); });
  expect(result == 0, sealed && locked != 0u ? EPERM : locked ? EINVAL : 0, "madvise(MADV_REMOVE)");
  if (sealed) return;
  for (size_t i = 0; i < locked.value_or(range->pages()); ++i)
    object->replace(model.pages.at(range->first() + i).object_page);
  check_range(range->address, range->length);
}

void Executor::huge_page() {
  const auto range = pick_pages(
      [](const Page& page) { return is_plain(page) && !is_busy(page) && !page.beyond_end(); });
  if (!range) return skip();
  const unsigned how = random(3) % 4;
  const int advice = how < 2 ? MADV_HUGEPAGE : how == 2 ? MADV_NOHUGEPAGE : kCollapse;
  say(" {:#x} ({:+}) {} pages advice {}", range->address, shown(range->first()), range->pages(),
      advice);
  const int result =
      timed([&] { return call_madvise(operation_.raw, range->address, range->length, advice); });
  // What can't be collapsed is no error of anybody's.
  if (advice != kCollapse) {
    expect(result == 0, 0, "madvise(MADV_HUGEPAGE)");
    mark_split(*range);
  }
  check_range(range->address, range->length);
}

void Executor::dont_fork() {
  const bool back = random(3) % 3 == 0;
  const auto range = pick_pages([](const Page& page) { return is_plain(page); });
  // What a bare mremap has grown in the mirror stays there when it is registered, and is a child's.
  if (!range || (settings_.bare_may_fail && is_split(range->first()))) return skip();
  say(" {:#x} ({:+}) {} pages{}", range->address, shown(range->first()), range->pages(),
      back ? " back" : "");
  const int result = timed([&] {
    return call_madvise(operation_.raw, range->address, range->length,
                        back ? MADV_DOFORK : MADV_DONTFORK);
  });
  expect(result == 0, 0, "madvise(MADV_DONTFORK)");
  mark_split(*range);
  for (size_t i = 0; i < range->pages(); ++i) model.pages.at(range->first() + i).dont_fork = !back;
}

void Executor::wipe_on_fork() {
  const bool back = random(3) % 3 == 0;
  const auto range =
      pick_pages([](const Page& page) { return is_plain(page) && page.object == nullptr; });
  if (!range) return skip();
  say(" {:#x} ({:+}) {} pages{}", range->address, shown(range->first()), range->pages(),
      back ? " back" : "");
  const int result = timed([&] {
    return call_madvise(operation_.raw, range->address, range->length,
                        back ? MADV_KEEPONFORK : MADV_WIPEONFORK);
  });
  // What a bare mremap has grown in the mirror stays there when it is registered.
  if (settings_.bare_may_fail && result != 0 && errno == EINVAL && is_split(range->first()))
    return say(": EINVAL");
  expect(result == 0, 0, "madvise(MADV_WIPEONFORK)");
  mark_split(*range);
  for (size_t i = 0; i < range->pages(); ++i)
    model.pages.at(range->first() + i).wipe_on_fork = !back;
}

void Executor::lock() {
  size_t locked = 0;
  for (const auto& [number, page] : model.pages) locked += page.locked;
  size_t most = SIZE_MAX;
  if (!can_lock_all_) {
    if (locked >= kFewLockedPages) return skip();
    most = kFewLockedPages - locked;
  }
  const auto range = pick_pages(
      [](const Page& page) { return !page.huge && page.can_read() && !is_busy(page); }, most);
  if (!range) return skip();
  const bool on_fault = random(3) % 3 == 0;
  say(" {:#x} ({:+}) {} pages{}", range->address, shown(range->first()), range->pages(),
      on_fault ? " on fault" : "");
  const int result = timed([&] {
    return on_fault ? mlock2(as_pointer(range->address), range->length, MLOCK_ONFAULT)
                    : mlock(as_pointer(range->address), range->length);
  });
  expect(result == 0, 0, "mlock");
  mark_split(*range);
  for (size_t i = 0; i < range->pages(); ++i) {
    Page& page = model.pages.at(range->first() + i);
    page.locked = true;
    if (!on_fault && page.can_write()) model.make_own(page, range->first() + i);
  }
  check_range(range->address, range->length);
}

void Executor::unlock() {
  const auto range = pick_pages([](const Page& page) { return page.locked && !page.huge; });
  if (!range) return skip();
  say(" {:#x} ({:+}) {} pages", range->address, shown(range->first()), range->pages());
  const int result = timed([&] { return munlock(as_pointer(range->address), range->length); });
  expect(result == 0, 0, "munlock");
  mark_split(*range);
  for (size_t i = 0; i < range->pages(); ++i) model.pages.at(range->first() + i).locked = false;
}

namespace {

// Returns what this process has in memory.
uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * kPage;
}

}  // namespace

void Executor::lock_all() {
  if (!can_lock_all_) return skip();
  constexpr int kFlags[] = {MCL_CURRENT,
                            MCL_FUTURE,
                            MCL_FUTURE,
                            MCL_CURRENT | MCL_FUTURE,
                            MCL_CURRENT | MCL_FUTURE,
                            MCL_CURRENT | MCL_ONFAULT,
                            MCL_FUTURE | MCL_ONFAULT,
                            MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT};
  const int flags = kFlags[random(3) % std::size(kFlags)];
  say(" flags {}", flags);
  const int result = timed([&] { return mlockall(flags); });
  expect(result == 0, 0, "mlockall");
  lock_future_ = (flags & MCL_FUTURE) != 0;
  if (ends_ != nullptr && profile_.arena_pages >= kMuchPages) register_after_lock();
  if ((flags & MCL_CURRENT) == 0) return;
  // All that there is of the program becomes resident, and something of the C library's.
  uint64_t most = kOtherLockedBytes + model.pages.size() * kPage;
  for (const BlockRef& block : model.blocks) most += 2 * block->bytes;
  if (const uint64_t now = resident_bytes();
      ends_ != nullptr && (flags & MCL_ONFAULT) == 0 && now > most)
    fail(fmt::format("mlockall made {} MiB resident", now >> 20));
  for (auto& [number, page] : model.pages) {
    page.locked = true;
    if ((flags & MCL_ONFAULT) == 0 && page.can_write()) model.make_own(page, number);
  }
}

// Large memory that comes after mlockall: programs lock themselves first.
void Executor::register_after_lock() {
  constexpr size_t kBytes = 24 << 20;
  void* const at =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  expect(at != MAP_FAILED, 0, "mmap after mlockall");
  std::memset(at, 1, kBytes);
  ibv_mr* const mr = timed([&] { return ibv_reg_mr(ends_->pd, at, kBytes, 0); });
  const bool refused = mr == nullptr && settings_.may_refuse && errno == EOPNOTSUPP;
  if (!refused) expect(mr != nullptr, 0, "ibv_reg_mr after mlockall");
  const auto* const bytes = static_cast<const uint8_t*>(at);
  if (std::count(bytes, bytes + kBytes, 1) != kBytes) fail("bytes registered after mlockall");
  if (mr != nullptr) expect(ibv_dereg_mr(mr) == 0, 0, "ibv_dereg_mr after mlockall");
  munmap(at, kBytes);
}

void Executor::unlock_all() {
  const int result = timed([&] { return munlockall(); });
  expect(result == 0, 0, "munlockall");
  lock_future_ = false;
  for (auto& [number, page] : model.pages) page.locked = false;
}

}  // namespace hostnic::twin
