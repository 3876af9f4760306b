// SPDX-License-Identifier: BSD-3-Clause
// The functions around stat that glibc before 2.33 does not have: there programs had them linked
// in, and called __xstat and its relatives. This library calls them all the same, and hooks them.
#pragma once

namespace hostnic::elf {

// A function that does by a system call what libc's `name` does: stat, lstat, fstat or fstatat, or
// one of these with 64 behind it. Null for other names.
void* stat_call(const char* name);

}  // namespace hostnic::elf
