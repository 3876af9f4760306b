// SPDX-License-Identifier: BSD-3-Clause
// Fences that the seldom side executes for both sides (membarrier(2), Linux 4.16).
//
// Two threads that each store and then look at what the other one stores need a full fence in
// between, both (Dekker). A full fence waits until every earlier store has its cache line, which is
// costly where one side does this with each work request. With a shared fence the seldom side
// fences the frequent one as well, and the latter only keeps the compiler from exchanging its store
// and its look: std::atomic_signal_fence(std::memory_order_seq_cst).
//
// A processor that idles in a process's memory while that calls takes_shared_fences() hears nothing
// of fence_processes() until it has served another process (seen with Linux 6.18; rarely met).
// Whoever relies on it looks once more a little later.
#pragma once

namespace hostnic {

// Asks the kernel to have the threads of this process fenced by others: fence_processes() of any
// process, fence_own_threads() of this one. May be called by any thread; asks once, also for
// children forked later. Returns false if the kernel does not know how or a filter forbids it; then
// nobody may rely on it.
bool takes_shared_fences();

// Fences the calling thread and all threads of all processes that take_shared_fences(), fully. This
// takes some hundred ns, a system call. Returns false if the kernel or a filter refuses; then only
// the caller was fenced.
bool fence_processes();

// Fences all threads of this process, which must take shared fences. Returns false if a filter that
// was set since forbids it.
bool fence_own_threads();

}  // namespace hostnic
