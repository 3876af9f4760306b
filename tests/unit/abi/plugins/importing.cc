// SPDX-License-Identifier: BSD-3-Clause
// A library that takes addresses of libc's functions, as its own table of imports has them.
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

using Address = void*;

extern "C" Address imported_munmap() { return reinterpret_cast<Address>(&munmap); }
extern "C" Address imported_free() { return reinterpret_cast<Address>(&free); }
extern "C" Address imported_malloc_trim() { return reinterpret_cast<Address>(&malloc_trim); }
extern "C" Address imported_getpid() { return reinterpret_cast<Address>(&getpid); }
// Is bound at its first call only.
extern "C" int calls_eaccess(const char* path) { return eaccess(path, R_OK); }
