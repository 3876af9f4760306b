// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/userfault.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

namespace hostnic::memory {

bool Userfault::open(int lent_device) {
  if (mode_ == UserfaultMode::kFull) return true;
  constexpr int kFlags = O_CLOEXEC | O_NONBLOCK;
  if (accept(static_cast<int>(syscall(SYS_userfaultfd, kFlags)), UserfaultMode::kFull)) return true;
  if (lent_device >= 0 &&
      accept(ioctl(lent_device, USERFAULTFD_IOC_NEW, kFlags), UserfaultMode::kFull))
    return true;
  if (mode_ == UserfaultMode::kUserOnly) return true;
  return accept(static_cast<int>(syscall(SYS_userfaultfd, kFlags | UFFD_USER_MODE_ONLY)),
                UserfaultMode::kUserOnly);
}

bool Userfault::accept(int fd, UserfaultMode mode) {
  if (fd < 0) {
    std::snprintf(error_, sizeof(error_),
                  "userfaultfd: %s (a container's seccomp profile may refuse it)",
                  std::strerror(errno));
    return false;
  }
  uffdio_api api{};
  api.api = UFFD_API;
  // The features include write protection of shared memory, which came with Linux 5.19; without it
  // pages can't come back.
  api.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM;
  if (ioctl(fd, UFFDIO_API, &api) != 0) {
    std::snprintf(error_, sizeof(error_),
                  "userfaultfd can't write-protect shared memory (Linux 5.19 or later can): %s",
                  std::strerror(errno));
    ::close(fd);
    return false;
  }
  close();
  fd_ = fd;
  mode_ = mode;
  error_[0] = '\0';
  return true;
}

void Userfault::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  mode_ = UserfaultMode::kNone;
}

int Userfault::stop(uint64_t start, uint64_t length_bytes, bool missing) {
  uffdio_register request{};
  request.range = {start, length_bytes};
  request.mode =
      UFFDIO_REGISTER_MODE_WP | (missing ? uint64_t{UFFDIO_REGISTER_MODE_MISSING} : uint64_t{0});
  if (ioctl(fd_, UFFDIO_REGISTER, &request) != 0) return errno;
  uffdio_writeprotect protect{};
  protect.range = request.range;
  protect.mode = UFFDIO_WRITEPROTECT_MODE_WP;
  for (int tries = 0; ioctl(fd_, UFFDIO_WRITEPROTECT, &protect) != 0; tries++) {
    const int error = errno;
    if ((error == EAGAIN || error == EINTR) && tries < 1000) continue;  // mappings are changing
    release(start, length_bytes);
    return error;
  }
  return 0;
}

void Userfault::wake(uint64_t start, uint64_t length_bytes) {
  uffdio_range range{start, length_bytes};
  ioctl(fd_, UFFDIO_WAKE, &range);
}

void Userfault::release(uint64_t start, uint64_t length_bytes) {
  uffdio_range range{start, length_bytes};
  ioctl(fd_, UFFDIO_UNREGISTER, &range);  // clears the protection and wakes
  wake(start, length_bytes);
}

}  // namespace hostnic::memory
