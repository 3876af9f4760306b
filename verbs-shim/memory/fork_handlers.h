// SPDX-License-Identifier: BSD-3-Clause
// Fork handlers that run innermost: before a fork behind all of the program's, after it ahead of
// them. The program's take its locks, and what these guard is at rest only then; a thread that has
// such a lock may wait for one of ours. The C library runs handlers in the order in which it got
// them, the other way round before a fork: ours are registered before the first of others' is.
// With those of a malloc that has locks of its own (jemalloc) they run while it is locked: they
// allocate nothing.
#pragma once

namespace hostnic::memory {

struct ForkHandlers {
  void (*before)();
  void (*in_parent)();
  void (*in_child)();
};

// Has handlers run from the next fork on, outside of those that were added before them. For any
// thread; four at most.
void add_fork_handlers(const ForkHandlers& handlers);

// Registers with the C library, once. For any thread, also before constructors ran.
void register_fork_handlers();

}  // namespace hostnic::memory
