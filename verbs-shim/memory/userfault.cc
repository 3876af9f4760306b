// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/userfault.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "verbs-shim/base/own_descriptors.h"
#include "verbs-shim/memory/page_mover.h"
#include "verbs-shim/memory/raw_memory.h"

#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_MOVE
#define UFFD_FEATURE_MOVE (1 << 16)
#endif

namespace hostnic::memory {
namespace {

constexpr int kChangeTries = 1000, kPausesGoingBack = 100, kHomePauseNs = 1'000'000;

}  // namespace

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
  constexpr uint64_t kNeeded = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM;
  api.features = kNeeded | UFFD_FEATURE_MOVE;
  bool moves_pages = ioctl(fd, UFFDIO_API, &api) == 0;
  bool usable = moves_pages;
  if (!usable) {
    api = {};
    api.api = UFFD_API;
    api.features = kNeeded;
    usable = ioctl(fd, UFFDIO_API, &api) == 0;
  }
  if (!usable) {
    std::snprintf(error_, sizeof(error_),
                  "userfaultfd can't write-protect shared memory (Linux 5.19 or later can): %s",
                  std::strerror(errno));
    ::close(fd);
    return false;
  }
  close();
  fd_ = keep_copy(fd);
  ::close(fd);
  if (fd_ < 0) {
    std::snprintf(error_, sizeof(error_), "userfaultfd: %s", std::strerror(errno));
    return false;
  }
  mode_ = mode;
  moves_pages_ = moves_pages;
  error_[0] = '\0';
  return true;
}

void Userfault::close() {
  close_ours(std::exchange(fd_, -1));
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
    if ((error == EAGAIN || error == EINTR) && tries < kChangeTries)
      continue;  // mappings are changing
    release(start, length_bytes);
    return error;
  }
  return 0;
}

int Userfault::stop_first_touches(uint64_t start, uint64_t length_bytes) {
  uffdio_register request{};
  request.range = {start, length_bytes};
  request.mode = UFFDIO_REGISTER_MODE_MISSING;
  return ioctl(fd_, UFFDIO_REGISTER, &request) == 0 ? 0 : errno;
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

int Userfault::accept_pages(uint64_t start, uint64_t length_bytes) {
  uffdio_register request{};
  request.range = {start, length_bytes};
  request.mode = UFFDIO_REGISTER_MODE_WP;
  return ioctl(fd_, UFFDIO_REGISTER, &request) == 0 ? 0 : errno;
}

// The pages are nobody's but ours, so that only memory for page tables can be missing, or a page be
// in the kernel's hands for a moment.
void Userfault::put_back(uint64_t to, uint64_t from, uint64_t length_bytes) {
  uffdio_register request{};
  request.range = {to, length_bytes};
  request.mode = UFFDIO_REGISTER_MODE_WP | UFFDIO_REGISTER_MODE_MISSING;
  ioctl(fd_, UFFDIO_REGISTER, &request);
  const PageMover mover(fd_, pagemap_fd_);
  int pauses = 0;
  for (uint64_t done = 0, moved = 0; done < length_bytes; done += moved) {
    const int error = mover.move_some(to + done, from + done, length_bytes - done, moved);
    if (error == 0) continue;
    const bool may_pass = error == ENOMEM || error == EAGAIN || error == EBUSY;
    if (may_pass && pauses++ < kPausesGoingBack) {
      const timespec pause{0, kHomePauseNs};
      nanosleep(&pause, nullptr);
    } else {
      copy_back(to + done, from + done);
      moved = kPageBytes;
    }
  }
}

// A page that has stayed at its place remains as it is.
void Userfault::copy_back(uint64_t page, uint64_t from) const {
  uffdio_copy copy{};
  copy.dst = page;
  copy.src = from;
  copy.len = kPageBytes;
  for (int tries = 0; tries < kPausesGoingBack && ioctl(fd_, UFFDIO_COPY, &copy) != 0; tries++) {
    if (errno != ENOMEM && errno != EAGAIN && errno != EINTR) return;
    const timespec pause{0, kHomePauseNs};
    nanosleep(&pause, nullptr);
  }
}

int Userfault::move_pages(uint64_t to, uint64_t from, uint64_t length_bytes) {
  const PageMover mover(fd_, pagemap_fd_);
  int tries = 0;
  for (uint64_t done = 0, moved = 0; done < length_bytes; done += moved) {
    const int error = mover.move_some(to + done, from + done, length_bytes - done, moved);
    if (error == 0) continue;
    if ((error != EAGAIN && error != EINTR) || ++tries == kChangeTries) return error;
    sched_yield();
  }
  return 0;
}

}  // namespace hostnic::memory
