// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/fork_handlers.h"

#include <atomic>
#include <mutex>

#include "verbs-shim/memory/libc_calls.h"
#include "verbs-shim/memory/own_process.h"

extern "C" __attribute__((visibility("hidden"))) void* __dso_handle;

namespace hostnic::memory {
namespace {

constexpr unsigned kMost = 4;
constinit ForkHandlers known[kMost] = {};
constinit std::atomic<unsigned> count{0};
constinit std::mutex adding;
// How many have been run before the calling thread's fork: another thread may add some meanwhile.
// The variable is of the kind that needs no memory.
[[gnu::tls_model("initial-exec")]] constinit thread_local unsigned entered = 0;

void before() {
  // A bare fork's child may find locks taken for ever. Nothing in it is to be told of a fork.
  entered = OwnProcess::is_bare_child() ? 0 : count.load(std::memory_order_acquire);
  for (unsigned i = entered; i > 0; i--) known[i - 1].before();
}
void in_parent() {
  for (unsigned i = 0; i < entered; i++) known[i].in_parent();
}
void in_child() {
  for (unsigned i = 0; i < entered; i++) known[i].in_child();
}

}  // namespace

void add_fork_handlers(const ForkHandlers& handlers) {
  register_fork_handlers();
  const std::lock_guard lock(adding);
  const unsigned number = count.load(std::memory_order_relaxed);
  if (number == kMost) return;
  known[number] = handlers;
  count.store(number + 1, std::memory_order_release);
}

void register_fork_handlers() {
  static constinit std::atomic<bool> registered{false};
  if (!registered.exchange(true)) libc_register_atfork(before, in_parent, in_child, __dso_handle);
}

}  // namespace hostnic::memory
