// SPDX-License-Identifier: BSD-3-Clause
// libc's own functions for mappings, behind the interposers: not the bare system calls, for others
// who watch a program's memory (UCX, libfabric, Open MPI) write a jump to theirs over libc's code.
// What they then do, such as deregistering the memory, happens within the call.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace hostnic::memory {

// Each is found at the first call; where there is no libc.so.6, the system call takes its place.
// For any thread, also before constructors ran and in signal handlers; errno is as with the
// originals.
int libc_munmap(void* at, size_t length);
void* libc_mmap(void* at, size_t length, int prot, int flags, int fd, off_t offset);
int libc_madvise(void* at, size_t length, int advice);
void* libc_mremap(void* from, size_t old_length, size_t length, int flags, void* to);
void* libc_shmat(int id, const void* at, int flags);
int libc_shmdt(const void* at);
// Without a libc.so.6 these two fail, with ENOMEM.
int libc_brk(void* end);
void* libc_sbrk(intptr_t increment);
// What pthread_atfork() calls. ENOMEM without a libc.so.6.
int libc_register_atfork(void (*before)(), void (*in_parent)(), void (*in_child)(), void* library);

}  // namespace hostnic::memory
