// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/settled_discards.h"

namespace hostnic::memory {

void SettledDiscards::note(pid_t thread, const Discard& discard, Mark& mark) {
  constexpr pid_t kTaken = -1;
  for (Entry& entry : entries_) {
    pid_t free = 0;
    if (!entry.thread.compare_exchange_strong(free, kTaken, std::memory_order_acquire)) continue;
    entry.start.store(discard.start, std::memory_order_relaxed);
    entry.end.store(discard.end, std::memory_order_relaxed);
    entry.of_locked.store(discard.of_locked, std::memory_order_relaxed);
    entry.thread.store(thread, std::memory_order_release);
    mark.entry_ = &entry;
    return;
  }
}

bool SettledDiscards::has(pid_t thread, const Discard& discard) const {
  for (const Entry& entry : entries_)
    if (entry.thread.load(std::memory_order_acquire) == thread)
      return entry.start.load(std::memory_order_relaxed) == discard.start &&
             entry.end.load(std::memory_order_relaxed) == discard.end &&
             entry.of_locked.load(std::memory_order_relaxed) == discard.of_locked;
  return false;
}

void SettledDiscards::forget() {
  for (Entry& entry : entries_) entry.thread.store(0, std::memory_order_relaxed);
}

}  // namespace hostnic::memory
