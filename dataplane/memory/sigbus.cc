// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/memory/sigbus.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <mutex>

namespace hostnic {
namespace {

// An entry of the table, written under table_mutex, read by the handler on any thread. `start` is
// stored last with release and cleared first, so a handler that sees it also sees the rest. An
// entry is reused only after nobody accesses its range, so no handler can be looking for it then;
// one that looks for another range and meets it half written sees that `start` has changed.
struct SigbusRange {
  std::atomic<uintptr_t> start{0};  // 0: free
  std::atomic<uintptr_t> end{0};
  std::atomic<uintptr_t> page_bytes{0};
  std::atomic<std::atomic<bool>*> mark{nullptr};
  std::atomic<uint32_t> replaced{0};  // how often memory was put there
  // All that was put there lies in between.
  std::atomic<uintptr_t> replaced_from{UINTPTR_MAX}, replaced_to{0};
};

// Each page that is put somewhere by itself makes up to two more areas, of which a process may have
// some 65,000. So a client loses single pages at first, then blocks, and at last all of the range.
constexpr uint32_t kSinglePages = 4, kBlocks = 16;
constexpr uintptr_t kBlockBytes = uintptr_t{4} << 20;

constinit SigbusRange ranges[kSigbusRanges];
constinit std::atomic<size_t> used_slots{0};  // all used entries lie below; bounds the handler
constinit std::mutex table_mutex;             // of those who add and remove

SigbusRange* find_start(uintptr_t start) {
  const size_t slots = used_slots.load(std::memory_order_acquire);
  for (size_t i = 0; i < slots; i++)
    if (ranges[i].start.load(std::memory_order_acquire) == start) return &ranges[i];
  return nullptr;
}

[[noreturn]] void abort_with_line() {
  static constexpr char kLine[] = "hostnicd: SIGBUS outside client memory, aborting\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kLine, sizeof(kLine) - 1);
  std::abort();
}

void widen(std::atomic<uintptr_t>& low, std::atomic<uintptr_t>& high, uintptr_t begin,
           uintptr_t end) {
  uintptr_t from = low.load(std::memory_order_relaxed);
  while (begin < from && !low.compare_exchange_weak(from, begin)) continue;
  uintptr_t to = high.load(std::memory_order_relaxed);
  while (end > to && !high.compare_exchange_weak(to, end)) continue;
}

void note_bounds(SigbusRange& range, uintptr_t begin, uintptr_t end) {
  widen(range.replaced_from, range.replaced_to, begin, end);
  widen(sigbus_detail::lowest, sigbus_detail::highest, begin, end);
}

// Once nothing is replaced any more nobody need look. A handler that runs meanwhile has noted its
// range before, which the second look finds, or widens the bounds afterwards.
void look_at_bounds() {
  for (const bool first : {true, false}) {
    bool any = false;
    for (size_t i = 0; i < used_slots.load(std::memory_order_acquire); i++) {
      const SigbusRange& range = ranges[i];
      if (range.start.load() == 0 || range.replaced_to.load() == 0) continue;
      any = true;
      if (!first)
        widen(sigbus_detail::lowest, sigbus_detail::highest, range.replaced_from.load(),
              range.replaced_to.load());
    }
    if (any || !first) return;
    sigbus_detail::highest.store(0);
    sigbus_detail::lowest.store(UINTPTR_MAX);
  }
}

// The bounds are known before anybody can read what is put there.
bool put_memory(SigbusRange& range, uintptr_t begin, uintptr_t end) {
  note_bounds(range, begin, end);
  return syscall(SYS_mmap, reinterpret_cast<void*>(begin), end - begin, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != -1;
}

// Puts memory where `address` is. The whole range costs the fewest areas, and the most time.
bool replace_part(SigbusRange& range, uintptr_t start, uintptr_t end, uintptr_t page_bytes,
                  uintptr_t address) {
  const uint32_t before = range.replaced.fetch_add(1, std::memory_order_relaxed);
  if (before < kBlocks) {
    const uintptr_t bytes = before < kSinglePages ? page_bytes : std::max(page_bytes, kBlockBytes);
    // What is cut off lies behind, and what lies before may be there.
    const uintptr_t begin = address & ~(page_bytes - 1);
    if (put_memory(range, std::max(begin, start), std::min(begin + bytes, end))) return true;
  }
  return put_memory(range, start, end);
}

// The handler, which is async-signal-safe: atomics and system calls.
void on_sigbus(int, siginfo_t* info, void*) {
  const int saved_errno = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  const size_t slots = used_slots.load(std::memory_order_acquire);
  for (size_t i = 0; i < slots; i++) {
    SigbusRange& range = ranges[i];
    const uintptr_t start = range.start.load(std::memory_order_acquire);
    const uintptr_t end = range.end.load(std::memory_order_relaxed);
    if (start == 0 || address < start || address >= end) continue;
    const uintptr_t page_bytes = range.page_bytes.load(std::memory_order_relaxed);
    std::atomic<bool>* const mark = range.mark.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (range.start.load(std::memory_order_relaxed) != start) continue;
    if (!replace_part(range, start, end, page_bytes, address)) abort_with_line();
    sigbus_detail::has_faulted.store(true, std::memory_order_relaxed);
    mark->store(true, std::memory_order_release);
    replacements.fetch_add(1, std::memory_order_release);
    errno = saved_errno;
    return;
  }
  abort_with_line();
}

}  // namespace

bool install_sigbus_guard() {
  struct sigaction action {};
  action.sa_sigaction = on_sigbus;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  return sigaction(SIGBUS, &action, nullptr) == 0;
}

bool add_sigbus_range(std::byte* start, uint64_t length_bytes, uint64_t page_bytes,
                      std::atomic<bool>* mark) {
  const std::lock_guard lock(table_mutex);
  SigbusRange* slot = find_start(0);
  const size_t slots = used_slots.load(std::memory_order_relaxed);
  if (slot == nullptr) {
    if (slots == kSigbusRanges) return false;
    slot = &ranges[slots];
  }
  const auto first = reinterpret_cast<uintptr_t>(start);
  // A handler that sees anything of what follows sees as well that `start` was cleared.
  std::atomic_thread_fence(std::memory_order_release);
  slot->end.store(first + length_bytes, std::memory_order_relaxed);
  slot->page_bytes.store(page_bytes, std::memory_order_relaxed);
  slot->mark.store(mark, std::memory_order_relaxed);
  slot->replaced.store(0, std::memory_order_relaxed);
  slot->replaced_from.store(UINTPTR_MAX, std::memory_order_relaxed);
  slot->replaced_to.store(0, std::memory_order_relaxed);
  slot->start.store(first, std::memory_order_release);
  if (slot == &ranges[slots]) used_slots.store(slots + 1, std::memory_order_release);
  return true;
}

void remove_sigbus_range(std::byte* start) {
  const std::lock_guard lock(table_mutex);
  SigbusRange* slot = find_start(reinterpret_cast<uintptr_t>(start));
  if (slot == nullptr) return;
  slot->start.store(0, std::memory_order_release);
  if (slot->replaced_to.load() != 0) look_at_bounds();
}

bool is_replaced(const std::byte* start, uint64_t length_bytes) {
  const auto first = reinterpret_cast<uintptr_t>(start);
  const size_t slots = used_slots.load(std::memory_order_acquire);
  for (size_t i = 0; i < slots; i++) {
    const SigbusRange& range = ranges[i];
    if (range.start.load(std::memory_order_acquire) == 0) continue;
    if (range.replaced_from.load(std::memory_order_relaxed) < first + length_bytes &&
        first < range.replaced_to.load(std::memory_order_relaxed))
      return true;
  }
  return false;
}

void sigbus_detail::look_at_copy(const std::byte* at, uint64_t length_bytes) {
  const auto first = reinterpret_cast<uintptr_t>(at);
  if (first < highest.load(std::memory_order_relaxed) &&
      first + length_bytes > lowest.load(std::memory_order_relaxed) &&
      is_replaced(at, length_bytes))
    has_faulted.store(true, std::memory_order_relaxed);
}

}  // namespace hostnic
