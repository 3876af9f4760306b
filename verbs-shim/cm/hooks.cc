// SPDX-License-Identifier: BSD-3-Clause
// The C library's functions on descriptors that have to know rdma_cm files. Compiled without
// sanitizers: sanitizer runtimes call these before they are ready.
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>

#include <atomic>
#include <cerrno>
#include <new>
#include <vector>

#include "verbs-shim/base/cancellation.h"
#include "verbs-shim/base/own_descriptors.h"
#include "verbs-shim/cm/device.h"
#include "verbs-shim/cm/device_number.h"
#include "verbs-shim/cm/files.h"
#include "verbs-shim/elf/next_function.h"

namespace {

using namespace hostnic::cm_device;
using hostnic::elf::next_function;

bool is_file(int fd) { return may_be_file(fd) && file_name(fd) != 0; }

// Makes a status look like the kernel's device under udev: readable and writable by all.
template <typename Stat>
void disguise(int fd, Stat* status) {
  if (!is_file(fd)) return;
  status->st_mode = S_IFCHR | 0666;
  status->st_rdev = makedev(kMiscMajor, device_minor());
}

// Whether a copy may get that number: one of this library's descriptors can't be replaced.
bool may_be_replaced(int fd) {
  if (__builtin_expect(!hostnic::is_kept(fd), 1)) return true;
  errno = EBUSY;
  return false;
}

// Says that a number leads to a copy of another descriptor now.
void note_replaced(int from, int to) {
  if (from != to) hostnic::note_closed(to, to);
  hostnic::copy_known(from, to);
}

// Waits for an event without being cancelled: librdmacm does not write in parts.
ssize_t write_parts(int fd, const iovec* parts, int count) {
  const hostnic::CancellationOff cancellation_off;
  try {
    std::vector<char> bytes;
    for (int i = 0; i < count; ++i) {
      const auto* from = static_cast<const char*>(parts[i].iov_base);
      bytes.insert(bytes.end(), from, from + parts[i].iov_len);
    }
    return write_command(fd, bytes.data(), bytes.size());
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return -1;
  }
}

}  // namespace

// The name in C++ differs, so that libc's declaration need not be repeated.
#define HOSTNIC_CM_HOOK(result, name, parameters)                                               \
  extern "C" [[gnu::visibility("default")]] result hostnic_cm_##name parameters __asm__(#name); \
  static std::atomic<result(*) parameters> next_##name;                                         \
  result hostnic_cm_##name parameters

#define NEXT(name) next_function(next_##name, #name)

HOSTNIC_CM_HOOK(ssize_t, write, (int fd, const void* bytes, size_t size)) {
  if (__builtin_expect(is_file(fd), 0)) return write_command(fd, bytes, size);
  return NEXT(write)(fd, bytes, size);
}

HOSTNIC_CM_HOOK(ssize_t, writev, (int fd, const iovec* parts, int count)) {
  if (__builtin_expect(is_file(fd), 0)) return write_parts(fd, parts, count);
  return NEXT(writev)(fd, parts, count);
}

HOSTNIC_CM_HOOK(int, fstat, (int fd, struct stat* status)) {
  const int result = NEXT(fstat)(fd, status);
  if (result == 0) disguise(fd, status);
  return result;
}

HOSTNIC_CM_HOOK(int, fstat64, (int fd, struct stat64* status)) {
  const int result = NEXT(fstat64)(fd, status);
  if (result == 0) disguise(fd, status);
  return result;
}

// These are what programs built before glibc 2.33 call for them.
HOSTNIC_CM_HOOK(int, __fxstat, (int version, int fd, struct stat* status)) {
  const int result = NEXT(__fxstat)(version, fd, status);
  if (result == 0) disguise(fd, status);
  return result;
}

HOSTNIC_CM_HOOK(int, __fxstat64, (int version, int fd, struct stat64* status)) {
  const int result = NEXT(__fxstat64)(version, fd, status);
  if (result == 0) disguise(fd, status);
  return result;
}

HOSTNIC_CM_HOOK(int, dup, (int fd)) {
  const int copy = NEXT(dup)(fd);
  if (copy >= 0) hostnic::copy_known(fd, copy);
  return copy;
}

HOSTNIC_CM_HOOK(int, dup2, (int fd, int to)) {
  if (!may_be_replaced(to)) return -1;
  const int copy = NEXT(dup2)(fd, to);
  if (copy >= 0) note_replaced(fd, copy);
  return copy;
}

HOSTNIC_CM_HOOK(int, dup3, (int fd, int to, int flags)) {
  if (!may_be_replaced(to)) return -1;
  const int copy = NEXT(dup3)(fd, to, flags);
  if (copy >= 0) note_replaced(fd, copy);
  return copy;
}
