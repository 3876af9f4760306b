// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/abi/fork.h"

#include <infiniband/verbs.h>
#include <pthread.h>

#include <atomic>

#include "verbs-shim/abi/devices.h"
#include "verbs-shim/abi/exports.h"
#include "verbs-shim/abi/real_verbs.h"
#include "verbs-shim/abi/registry.h"
#include "verbs-shim/cm/known_ids.h"
#include "verbs-shim/hooks/path_map.h"
#include "verbs-shim/memory/fork_handlers.h"
#include "verbs-shim/memory/fork_init.h"
#include "verbs-shim/memory/own_process.h"
#include "verbs-shim/runtime/core_sharing.h"

namespace hostnic::abi {
namespace {

// The registry's lock is held from before fork until after it, on both sides: the child must find
// the registry whole. These allocate nothing (fork_handlers.h).
ObjectLock& lock_across_fork() {
  static ObjectLock& lock = *new ObjectLock;
  return lock;
}

void before_fork() {
  lock_real_search_across_fork();
  hooks::lock_tree_across_fork();
  cm_device::lock_ids_across_fork();
  ObjectLock lock = lock_objects();
  lock_across_fork() = std::move(lock);
}

void after_fork_in_parent() {
  lock_across_fork().unlock();
  cm_device::unlock_ids_after_fork();
  hooks::unlock_tree_after_fork();
  unlock_real_search_after_fork();
}

void after_fork_in_child() {
  runtime::forget_own_tid();
  after_fork_in_parent();
}

// This comes later, when a malloc works again.
void abandon_in_child() {
  // A bare fork's child may have the lock taken for ever, and so its own children.
  if (memory::OwnProcess::is_bare_child()) return;
  ObjectLock lock = lock_objects();
  for (void* context : contexts()) {
    ContextObject* object = object_of(static_cast<ibv_context*>(context));
    object->abandoned.store(true);
    object->driver->abandon_after_fork();
  }
}

std::atomic<bool> fork_initialized{false};

}  // namespace

void watch_forks() {
  // Memory's handlers come first, and so run first in a child: what our handlers touch may have
  // migrated.
  static constinit std::atomic<bool> watching{false};
  if (watching.exchange(true)) return;
  memory::watch_forks();
  before_fork();  // what is made at the first use is made now
  after_fork_in_parent();
  memory::add_fork_handlers({before_fork, after_fork_in_parent, after_fork_in_child});
  pthread_atfork(nullptr, nullptr, abandon_in_child);
}

}  // namespace hostnic::abi

using namespace hostnic::abi;

HOSTNIC_VERB int ibv_fork_init(void) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int()> real("ibv_fork_init", "IBVERBS_1.1");
  hostnic::memory::set_fork_init();
  fork_initialized.store(true);
  const int error = real.call();
  // A machine without libibverbs' kernel side still has our devices.
  return error == ENOSYS ? 0 : error;
}

HOSTNIC_VERB ibv_fork_status ibv_is_fork_initialized(void) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<ibv_fork_status()> real("ibv_is_fork_initialized", "IBVERBS_1.13");
  if (fork_initialized.load()) return IBV_FORK_ENABLED;
  // IBV_FORK_UNNEEDED is passed on: the real library may say so, since recent kernels copy pinned
  // pages at fork; our pages are copied by our own fork handler, so that it is true of them, too.
  const ibv_fork_status status = real.call();
  return status == IBV_FORK_UNNEEDED ? status : IBV_FORK_DISABLED;
}
