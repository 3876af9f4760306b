// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/runtime/last_sends.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "verbs-shim/runtime/context.h"

namespace hostnic::runtime {
namespace {

struct OpenContexts {
  std::mutex mutex;
  std::vector<Context*> all;
  pid_t pid = getpid();
};
std::atomic<OpenContexts*> current{nullptr};

// This process's, or null. A forked child leaves the parent's, whose mutex nobody may give back.
OpenContexts* known_contexts() {
  OpenContexts* const known = current.load(std::memory_order_acquire);
  return known != nullptr && known->pid == getpid() ? known : nullptr;
}

void let_all_leave() {
  OpenContexts* const known = known_contexts();
  if (known == nullptr) return;
  OpenContexts& open = *known;
  // exit() may have been called by a signal handler, in the middle of an open or a close.
  const std::unique_lock lock(open.mutex, std::try_to_lock);
  if (!lock) return;
  for (Context* const each : open.all) each->let_all_leave();
}

}  // namespace

void note_open(Context& context) {
  [[maybe_unused]] static const int once = atexit(let_all_leave) + at_quick_exit(let_all_leave);
  OpenContexts* found = current.load(std::memory_order_acquire);
  if (found == nullptr || found->pid != getpid()) {
    auto* const fresh = new OpenContexts;
    if (current.compare_exchange_strong(found, fresh))
      found = fresh;
    else
      delete fresh;
  }
  const std::lock_guard lock(found->mutex);
  found->all.push_back(&context);
}

void note_closed(Context& context) {
  OpenContexts* const known = known_contexts();
  if (known == nullptr) return;
  const std::lock_guard lock(known->mutex);
  std::erase(known->all, &context);
}

}  // namespace hostnic::runtime
