// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/check/report.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <set>
#include <tuple>

#include "verbs-shim/check/check.h"
#include "verbs-shim/check/places.h"
#include "verbs-shim/check/spin_lock.h"

namespace hostnic::check {

bool on = false;

namespace {

CheckBoard* the_board = nullptr;
std::atomic<bool> counted{false};
SpinLock told_lock;
using Told = std::set<std::tuple<CheckKind, const void*, const void*>>;
Told* told = nullptr;

CheckBoard* map_board(const char* path) {
  const auto fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC));
  if (fd < 0) return nullptr;
  struct stat file {};
  CheckBoard* board = nullptr;
  if (fstat(fd, &file) == 0 && static_cast<size_t>(file.st_size) >= sizeof(CheckBoard)) {
    const long mapped =
        syscall(SYS_mmap, nullptr, sizeof(CheckBoard), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped != -1)
      board = reinterpret_cast<CheckBoard*>(mapped);  // NOLINT(performance-no-int-to-ptr)
  }
  syscall(SYS_close, fd);
  return board != nullptr && board->magic == kCheckMagic && board->version == kCheckVersion
             ? board
             : nullptr;
}

[[gnu::constructor]] void attach() {
  const char* path = getenv(kCheckBoardVariable);
  if (path == nullptr || *path == '\0') return;
  const int saved_errno = errno;
  the_board = map_board(path);
  // A program that is not checked must not run as if it had been.
  if (the_board == nullptr) {
    fprintf(stderr, "hostnic check: %s: findings can't be written to it\n", path);
    _exit(1);
  }
  told = new Told;
  on = true;
  errno = saved_errno;
}

bool is_new(CheckKind kind, const void* here, const void* other) {
  const SpinGuard guard(told_lock);
  return told->insert({kind, here, other}).second;
}

uint32_t add(CheckKind kind, const OtherPlace& other, uint32_t state, const char* format,
             va_list arguments) {
  if (kCheckKinds[static_cast<size_t>(kind)].is_strict && !is_strict()) return kNoRecord;
  const int saved_errno = errno;
  const Stack stack = stack_of_program();
  uint32_t number = kNoRecord;
  if (is_new(kind, stack.count > 0 ? stack.address[0] : nullptr, other.address)) {
    number = the_board->taken.fetch_add(1, std::memory_order_relaxed);
    if (number >= CheckBoard::kRecords) number = kNoRecord;
  }
  if (number != kNoRecord) {
    CheckRecord& record = the_board->record[number];
    record.kind = kind;
    record.pid = static_cast<int32_t>(getpid());
    snprintf(record.program, sizeof(record.program), "%s", program_invocation_short_name);
    snprintf(record.verb, sizeof(record.verb), "%s", current_verb());
    vsnprintf(record.text, sizeof(record.text), format, arguments);
    record.places = std::min(stack.count, CheckRecord::kMostPlaces);
    for (uint32_t i = 0; i < record.places; ++i) describe(stack.address[i], record.place[i]);
    if (other.address != nullptr) {
      snprintf(record.other_word, sizeof(record.other_word), "%s", other.word);
      describe(other.address, record.other);
    }
    record.state.store(state, std::memory_order_release);
  }
  errno = saved_errno;
  return number;
}

}  // namespace

void report(CheckKind kind, const OtherPlace& other, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  add(kind, other, kFinal, format, arguments);
  va_end(arguments);
}

uint32_t report_for_now(CheckKind kind, const OtherPlace& other, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const uint32_t number = add(kind, other, kProvisional, format, arguments);
  va_end(arguments);
  return number;
}

void withdraw(uint32_t record) {
  if (record == kNoRecord) return;
  uint32_t expected = kProvisional;
  the_board->record[record].state.compare_exchange_strong(expected, kWithdrawn);
}

bool is_strict() { return the_board->is_strict; }
bool is_full() { return the_board->is_full; }

void begin_reports_in_child() {
  told_lock.reset();
  counted.store(false, std::memory_order_relaxed);
}

void count_process() {
  if (counted.load(std::memory_order_relaxed) || counted.exchange(true)) return;
  the_board->processes.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace hostnic::check
