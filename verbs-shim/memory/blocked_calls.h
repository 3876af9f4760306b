// SPDX-License-Identifier: BSD-3-Clause
// Calls that threads of this process wait in (/proc/self/task/TID/syscall). A thread that discards,
// moves or unmaps watched memory waits in the kernel until an event of a userfaultfd has been read:
// the thread that reads it looks here before, and settles the call.
#pragma once

#include <sys/mman.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#ifndef MADV_DONTNEED_LOCKED  // Linux 5.18
#define MADV_DONTNEED_LOCKED 24
#endif

namespace hostnic::memory {

struct BlockedCall {
  long number = -1;
  uint64_t arguments[6] = {};
  pid_t thread = 0;  // that waits
};

// The thread that reads events, and the descriptors by which it reaches the mirror and the
// userfaultfd of the mirror's watch: late filling has a descriptor table of its own.
struct EventReader {
  int mirror = -1, watch = -1;
  bool is_late_fill = false;
};

// Settles a call before the thread that waits in it goes on. Returns from where the call has moved
// memory that NICs reach by the mem fd from now on, at its old address until its event is told; 0:
// none.
using SettleCall = uint64_t(const BlockedCall& call, const EventReader& reader);

// Calls settle() for each such thread but the calling one, and returns what it returned last that
// was not 0. Needs no memory. For a discard it holds
// what read_events_of() waits for, and the thread is known to wait for an event: otherwise
//   1. the thread discards, and its event has been read: it waits for the address space's lock;
//      or its event is another reader's to read
//   2. this reader, which has another event to read, sees it in its call, and has to wait for a
//      processor
//   3. the thread goes on, its call ends, and it writes to the page
//   4. this reader makes zeros of what the thread wrote.
uint64_t for_each_blocked_call(SettleCall* settle, const EventReader& reader);

// Whether an event can be read now. The kernel gives the oldest first, and faults before changes:
// calls are looked at after this and before the read, so that what is read was looked at.
bool has_event(int userfault, int patience_ms = 0);

// As read(), for the events of discards: reading one lets its thread go on.
ssize_t read_events_of(int userfault, void* to, size_t length_bytes);

// Called in a forked child, which has none of the readers.
void forget_readers();

// Parses one line of /proc/self/task/TID/syscall. Returns false if the thread waits in no call, or
// the line ends before the call's last argument.
bool parse_blocked_call(const char* line, const char* end, BlockedCall& call);

// Whole pages that a call discards (MADV_DONTNEED): perhaps only the first of them.
struct Discard {
  uint64_t start = 0, end = 0;
  bool of_locked = false;  // MADV_DONTNEED_LOCKED: locked pages as well
};
// Finds the `index`th range that a call discards: madvise() has one, process_madvise() (Linux 6.13)
// several. Returns false if it has none or the kernel can't take it, which stops there. It reads
// the call's list of ranges from this process's memory.
bool find_discard(const BlockedCall& call, size_t index, Discard& discard);

// An mremap: [from, from + old_bytes) becomes new_bytes, whole pages.
struct MoveCall {
  uint64_t from = 0, old_bytes = 0, new_bytes = 0;
  bool stays_mapped = false;  // MREMAP_DONTUNMAP
  bool may_move = false;      // MREMAP_MAYMOVE
  uint64_t to = 0;            // where it goes; 0: where the kernel likes
};
bool is_move(const BlockedCall& call, MoveCall& move);

// Whether a call unmaps memory, and which whole pages.
bool is_unmap(const BlockedCall& call, uint64_t& start, uint64_t& end);

}  // namespace hostnic::memory
