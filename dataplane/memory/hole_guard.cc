// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/memory/hole_guard.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "protocol/hostif/unique_fd.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

namespace hostnic {
namespace {

// Nobody reads the descriptor: with UFFD_FEATURE_SIGBUS there are no messages, and the kernel's own
// accesses fail with EFAULT.
UniqueFd open_userfault() {
  UniqueFd fd(
      static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY)));
  if (!fd) return {};
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_SIGBUS | UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_MISSING_HUGETLBFS;
  return ioctl(fd.get(), UFFDIO_API, &api) == 0 ? std::move(fd) : UniqueFd();
}

int userfault() {
  static const auto* const kFd = new UniqueFd(open_userfault());  // stays as long as the process
  return kFd->get();
}

}  // namespace

bool can_guard_holes() { return userfault() >= 0; }

bool guard_holes(std::byte* start, uint64_t length_bytes) {
  uffdio_register range{};
  range.range = {reinterpret_cast<uintptr_t>(start), length_bytes};
  range.mode = UFFDIO_REGISTER_MODE_MISSING;
  return can_guard_holes() && ioctl(userfault(), UFFDIO_REGISTER, &range) == 0;
}

}  // namespace hostnic
