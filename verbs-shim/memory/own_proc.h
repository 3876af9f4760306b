// SPDX-License-Identifier: BSD-3-Clause
// This process's files in /proc (proc(5)), for programs that can't open them any more: that have no
// descriptor left, have left /proc by chroot(), or have given their user away. Their memory is what
// it was, and the kernel changes it without opening anything.
#pragma once

namespace hostnic::memory {

// Keeps descriptors of /proc/self and of its list of mappings, and spare ones. To be called while
// /proc can be reached, with the registrar's lock; what is kept already stays.
void keep_own_proc();
// For a forked child, before it opens anything: what is kept leads to its parent.
void forget_own_proc();

// For a thread that has a descriptor table of its own: its copies of what is kept; -1: none.
struct OwnProc {
  int folder = -1, maps = -1;
};
OwnProc keep_own_proc_in_own_table();

// The kept descriptor of /proc/self/maps, to be read by pread() and ioctl(); -1: there is none. For
// any thread. In a child of a bare fork() or after a bare close_range() there is none, either.
int own_maps();

// Opens /proc/self/NAME for a moment, with flags as of open(). Returns -1 with errno. For any
// thread. close_own_proc() closes it.
int open_own_proc(const char* name, int flags);
void close_own_proc(int fd);

}  // namespace hostnic::memory
