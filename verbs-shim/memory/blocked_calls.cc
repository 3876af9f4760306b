// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/blocked_calls.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <mutex>
#include <new>
#include <string_view>

#include "verbs-shim/memory/numbered_entries.h"
#include "verbs-shim/memory/raw_memory.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

namespace hostnic::memory {
namespace {

// Held while a discard is settled, and while an event is read.
constinit std::mutex reading;

bool read_call(int thread, BlockedCall& call) {
  call.thread = thread;
  char line[256];
  const ssize_t got = read_of_thread(thread, "syscall", line);
  return got > 0 && parse_blocked_call(line, line + got, call);
}

// Whether a thread waits until an event is read. Where the kernel names no function ("0") it may.
bool waits_for_event(int thread) {
  char name[64];
  const ssize_t got = read_of_thread(thread, "wchan", name);
  const std::string_view function(name, got > 0 ? static_cast<size_t>(got) : 0);
  return function.empty() || function == "0" ||
         function.find("userfaultfd") != std::string_view::npos;
}

// Whole pages from an address on. Returns false for what no call takes.
bool whole_pages(uint64_t at, uint64_t bytes, uint64_t& end) {
  end = at + page_up(bytes);
  return at % kPageBytes == 0 && end > at;
}

// Reads a range of a process_madvise(). The list may be anywhere, and go while it is read. The
// kernel takes advice of this kind for the caller's own memory only.
bool read_range(const BlockedCall& call, size_t index, iovec& range) {
  if (index >= call.arguments[2]) return false;
  iovec to{&range, sizeof(range)};
  iovec from{pointer(call.arguments[1] + index * sizeof(range)), sizeof(range)};
  return syscall(SYS_process_vm_readv, getpid(), &to, 1, &from, 1, 0) == sizeof(range);
}

}  // namespace

// "NUMBER 0xARGUMENT ... 0xSTACK 0xPLACE", or "running", or "-1 ..." outside of a call.
bool parse_blocked_call(const char* line, const char* end, BlockedCall& call) {
  auto [at, failed] = std::from_chars(line, end, call.number);
  if (failed != std::errc{} || call.number < 0) return false;
  for (uint64_t& each : call.arguments) {
    if (end - at < 3 || std::memcmp(at, " 0x", 3) != 0) return false;
    const auto [next, wrong] = std::from_chars(at + 3, end, each, 16);
    if (wrong != std::errc{}) return false;
    at = next;
  }
  return true;
}

bool find_discard(const BlockedCall& call, size_t index, Discard& discard) {
  const bool is_list = call.number == SYS_process_madvise;
  const auto advice = static_cast<int>(call.arguments[is_list ? 3 : 2]);
  discard.of_locked = advice == MADV_DONTNEED_LOCKED;
  if (advice != MADV_DONTNEED && !discard.of_locked) return false;
  iovec range{pointer(call.arguments[0]), call.arguments[1]};
  const bool found =
      is_list ? read_range(call, index, range) : call.number == SYS_madvise && index == 0;
  discard.start = address(range.iov_base);
  return found && whole_pages(discard.start, range.iov_len, discard.end);
}

bool is_move(const BlockedCall& call, MoveCall& move) {
  const uint64_t flags = call.arguments[3];
  move.from = call.arguments[0];
  move.old_bytes = page_up(call.arguments[1]);
  move.new_bytes = page_up(call.arguments[2]);
  move.stays_mapped = (flags & MREMAP_DONTUNMAP) != 0;
  move.may_move = (flags & MREMAP_MAYMOVE) != 0;
  move.to = (flags & MREMAP_FIXED) != 0 ? call.arguments[4] : 0;
  uint64_t end = 0;
  return call.number == SYS_mremap && whole_pages(move.from, move.old_bytes, end) &&
         move.new_bytes != 0 && move.to % kPageBytes == 0;
}

bool is_unmap(const BlockedCall& call, uint64_t& start, uint64_t& end) {
  start = call.arguments[0];
  return call.number == SYS_munmap && whole_pages(start, call.arguments[1], end);
}

uint64_t for_each_blocked_call(SettleCall* settle, const EventReader& reader) {
  uint64_t moved_from = 0;
  const auto settle_one = [&](const BlockedCall& call) {
    if (const uint64_t from = settle(call, reader); from != 0) moved_from = from;
  };
  const auto self = static_cast<int>(syscall(SYS_gettid));
  for_each_number("task", [&](int thread) {
    if (thread == self) return true;
    BlockedCall call;
    if (!read_call(thread, call)) return true;
    if (Discard discard; !find_discard(call, 0, discard)) {
      settle_one(call);
      return true;
    }
    const std::lock_guard lock(reading);
    if (waits_for_event(thread) && read_call(thread, call)) settle_one(call);
    return true;
  });
  return moved_from;
}

bool has_event(int userfault, int patience_ms) {
  pollfd readable{userfault, POLLIN, 0};
  return poll(&readable, 1, patience_ms) > 0;
}

ssize_t read_events_of(int userfault, void* to, size_t length_bytes) {
  const std::lock_guard lock(reading);
  return read(userfault, to, length_bytes);
}

void forget_readers() { new (&reading) std::mutex; }

}  // namespace hostnic::memory
