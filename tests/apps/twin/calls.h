// SPDX-License-Identifier: BSD-3-Clause
// The system calls under test, by the C library or past it. Results and errors are the C library's
// either way.
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace hostnic::twin {

inline void* as_pointer(uint64_t address) { return reinterpret_cast<void*>(address); }
inline uint64_t as_address(const void* at) { return reinterpret_cast<uint64_t>(at); }
inline uint8_t* as_bytes(uint64_t address) { return reinterpret_cast<uint8_t*>(address); }

// MAP_FAILED as an address.
inline constexpr uint64_t kFailed = ~uint64_t{0};

inline uint64_t call_mmap(bool raw, uint64_t at, size_t length, int prot, int flags, int fd,
                          off_t offset) {
  if (raw) return static_cast<uint64_t>(syscall(SYS_mmap, at, length, prot, flags, fd, offset));
  return as_address(mmap(as_pointer(at), length, prot, flags, fd, offset));
}
inline int call_munmap(bool raw, uint64_t at, size_t length) {
  return raw ? static_cast<int>(syscall(SYS_munmap, at, length)) : munmap(as_pointer(at), length);
}
inline uint64_t call_mremap(bool raw, uint64_t at, size_t old_length, size_t length, int flags,
                            uint64_t to) {
  if (raw) return static_cast<uint64_t>(syscall(SYS_mremap, at, old_length, length, flags, to));
  return as_address(mremap(as_pointer(at), old_length, length, flags, as_pointer(to)));
}
inline int call_mprotect(bool raw, uint64_t at, size_t length, int prot) {
  return raw ? static_cast<int>(syscall(SYS_mprotect, at, length, prot))
             : mprotect(as_pointer(at), length, prot);
}
inline int call_madvise(bool raw, uint64_t at, size_t length, int advice) {
  return raw ? static_cast<int>(syscall(SYS_madvise, at, length, advice))
             : madvise(as_pointer(at), length, advice);
}

}  // namespace hostnic::twin
