// SPDX-License-Identifier: BSD-3-Clause
// How late filling brings pages to their place: out of the stash, through the window, and in. No
// page is dropped: it gets there, goes back, or is known to be lost.
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "verbs-shim/memory/late_fill.h"
#include "verbs-shim/memory/page_mover.h"

namespace hostnic::memory {
namespace {

constexpr int64_t kPauseNs = 100'000, kMemoryPauseNs = 1'000'000;
constexpr int kTries = 1000, kYields = 100;
constexpr int kCopyTries = 150;  // of a page while mappings change: some milliseconds
constexpr int kMemoryTries = 5;  // for a page while the system has no memory; then the next order

// The request, which older headers don't have (Linux 6.6).
struct PoisonRequest {
  uint64_t start, length_bytes, mode;
  int64_t done_bytes;
};
constexpr unsigned long kPoisonPages = _IOWR(0xAA, 0x08, PoisonRequest);

void sleep_ns(int64_t ns) {
  const timespec pause{0, ns};
  nanosleep(&pause, nullptr);
}

}  // namespace

// A change of mappings that has been read ends when its thread runs, which others may keep from
// that.
void LateFill::let_others_run(int tries) {
  tries < kYields ? void(sched_yield()) : sleep_ns(kPauseNs);
}

// Maps the place to which pages leave, anew each time: page tables left there would split huge
// pages. It must not stop first touches: the kernel reads holes there on this thread.
bool LateFill::map_transit() const {
  if (map_without_pages(pointer(window_), kSliceBytes) == MAP_FAILED) return false;
  raw_madvise(pointer(window_), kSliceBytes, MADV_DONTFORK);
  uffdio_register request{};
  request.range = {window_, kSliceBytes};
  request.mode = UFFDIO_REGISTER_MODE_WP;
  return ioctl(fd_, UFFDIO_REGISTER, &request) == 0;
}

void LateFill::unmap_transit() const {
  raw_mmap(pointer(window_), kSliceBytes, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

// Moves pages from the stash, up to `length`, which becomes what has moved. Returns 0, EBUSY for a
// page that is in the hands of a device, EAGAIN while mappings change, or another errno value; then
// nothing has moved.
int LateFill::take_out(uint64_t to, uint64_t from, uint64_t& length) {
  const PageMover mover(fd_, own_pagemap_fd_);
  bool own = false;
  for (int tries = 0; tries < kTries; tries++) {
    uint64_t moved = 0;
    const int error = mover.move_some(to, from, length, moved);
    if (error == 0) {
      length = moved;
      return 0;
    }
    if (error == EAGAIN || error == EINTR) {
      read_events();
      let_others_run(tries);
    } else if (error == EBUSY && !std::exchange(own, true)) {
      // What a forked child shares becomes the program's own by a write.
      raw_madvise(pointer(from), kPageBytes, MADV_POPULATE_WRITE);
    } else {
      return error;
    }
  }
  return EAGAIN;
}

// A page that is in the mirror is never copied again: the program may have written to it. Returns
// 0, or an errno value and how many bytes, from `at` on, are there.
int LateFill::put_in(uint64_t at, uint64_t source, uint64_t length, uint64_t& done) {
  uint64_t most = length;  // one page at a time where the place is no longer whole
  int tries = 0;
  for (done = 0; done < length;) {
    uffdio_copy copy{};
    copy.dst = at + done;
    copy.src = source + done;
    copy.len = std::min(most, length - done);
    int error = ioctl(fd_, UFFDIO_COPY, &copy) == 0 ? 0 : errno;
    if (error == 0 || copy.copy > 0) {
      done += static_cast<uint64_t>(copy.copy);
      tries = 0;
      continue;
    }
    const bool may_pass = error == EAGAIN || error == ENOMEM || error == EINTR;
    if (!may_pass && copy.len != kPageBytes) {
      most = kPageBytes;
      continue;
    }
    // A page that is there is good. One that the kernel does not put there, for whatever reason, is
    // written to the file: the program has mapped something else, and a key leads to it still.
    if (error == EEXIST || (!may_pass && (error = copy_into_file(at + done, source + done)) == 0)) {
      done += kPageBytes;
    } else if (error == EAGAIN && ++tries < kCopyTries) {
      read_events();
      let_others_run(tries);
    } else if ((error == ENOMEM || error == EINTR) && ++tries < kMemoryTries) {
      sleep_ns(kMemoryPauseNs);
    } else {
      return error;
    }
  }
  return 0;
}

int LateFill::copy_into_file(uint64_t page, uint64_t source) const {
  const auto offset = static_cast<off_t>(page);
  if (lseek(own_mirror_fd_, offset, SEEK_DATA) == offset) return 0;
  // A write of what can't be read would leave a page of zeros there (Linux 6.16).
  unsigned char resident = 0;
  if (mincore(pointer(source), kPageBytes, &resident) != 0) return EFAULT;
  const ssize_t written = pwrite(own_mirror_fd_, pointer(source), kPageBytes, offset);
  if (written == kPageBytes) return 0;
  const int error = written >= 0 ? ENOMEM : errno;
  if (error != EFBIG) {
    fallocate(own_mirror_fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, kPageBytes);
    return error;
  }
  // The program limits the size of files that it writes.
  void* to = raw_mmap(pointer(window_ + kSliceBytes), kPageBytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_NORESERVE | MAP_FIXED, own_mirror_fd_, offset);
  if (to == MAP_FAILED) return ENOMEM;
  std::memcpy(to, pointer(source), kPageBytes);
  raw_mmap(to, kPageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
           0);
  return 0;
}

// Pages that had left the stash and could not be put in: they go back to where they will be looked
// for next time. Empty ones are not made there.
void LateFill::put_back(uint64_t stash, uint64_t transit, uint64_t length) const {
  for (uint64_t at = 0; at < length; at += kPageBytes) {
    const auto* const words = static_cast<const uint64_t*>(pointer(transit + at));
    if (std::any_of(words, words + kPageBytes / sizeof(*words), [](uint64_t w) { return w != 0; }))
      std::memcpy(pointer(stash + at), words, kPageBytes);
  }
}

// Whether a page can't come any more: it is neither in the mirror nor in the stash, whose place the
// program has unmapped.
bool LateFill::is_lost(uint64_t page, uint64_t source) const {
  unsigned char resident = 0;
  return mincore(pointer(source), kPageBytes, &resident) != 0 && errno == ENOMEM &&
         lseek(own_mirror_fd_, static_cast<off_t>(page), SEEK_DATA) != static_cast<off_t>(page);
}

// An access to a page that is lost fails, the program's (SIGBUS, as with a page whose memory has
// failed) and that of who has a key: zeros would be a lie.
void LateFill::lose(uint64_t page) {
  PoisonRequest request{page, kPageBytes, 0, 0};
  ioctl(fd_, kPoisonPages, &request);
  if (lost_ != nullptr) lost_(page, page + kPageBytes);
}

}  // namespace hostnic::memory
