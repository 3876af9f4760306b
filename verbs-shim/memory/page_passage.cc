// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/page_passage.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "verbs-shim/memory/page_mover.h"

namespace hostnic::memory {
namespace {

constexpr int64_t kCopyPauseNs = 100'000, kMemoryPauseNs = 1'000'000;
constexpr int kTakeTries = 1000, kYields = 100;
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
void let_others_run(int tries) { tries < kYields ? void(sched_yield()) : sleep_ns(kCopyPauseNs); }

int PagePassage::reserve() {
  if (window_ != 0) return 0;
  void* at = raw_mmap(nullptr, 3 * kSliceBytes, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return errno;
  raw_madvise(at, 3 * kSliceBytes, MADV_DONTFORK);
  window_ = slice_up(address(at));
  return 0;
}

int PagePassage::bring(uint64_t start, uint64_t stash_delta, bool takes_out) {
  // Where no memory may be mapped any more (RLIMIT_DATA) pages are copied where they are, though a
  // device might be writing to them just now: the program waits for them, perhaps for ever.
  const bool mapped = takes_out && map_transit();
  if (mapped) copying_ = start;
  const int left = bring_pages(start, stash_delta, mapped);
  copying_ = 0;
  if (!takes_out) return left;
  unmap_transit();
  return left;
}

void PagePassage::drop(uint64_t start, uint64_t end) {
  const uint64_t from = std::max(copying_, start), to = std::min(copying_ + kSliceBytes, end);
  if (copying_ != 0 && from < to) std::memset(pointer(window_ + (from - copying_)), 0, to - from);
}

int PagePassage::bring_pages(uint64_t start, uint64_t stash_delta, bool takes_out) {
  const uint64_t end = start + kSliceBytes;
  int left = 0;  // why something is left
  for (uint64_t at = start; at < end;) {
    const uint64_t stash = at + stash_delta;
    uint64_t length = end - at, source = stash, done = 0;
    if (takes_out) {
      const uint64_t transit = window_ + (at - start);
      int error = take_out(transit, source, length);
      if (error == ENOENT) error = take_out(transit, source, length = kPageBytes);  // not whole
      if (error == EINVAL) {
        takes_out = false;  // memory that the kernel can't move
      } else if (error == EAGAIN) {
        left = EBUSY;  // all of it, until later
        break;
      } else if (error != 0 && !is_lost(at, stash)) {
        left = EBUSY;
        at += kPageBytes;
        continue;
      } else if (error == 0) {
        source = transit;
      }
    }
    const int error = put_in(at, source, length, done);
    at += done;
    if (error == 0) continue;
    if (source != stash) {
      put_back(stash + done, source + done, length - done);
    } else if (is_lost(at, stash + done)) {
      lose(at);
      at += kPageBytes;
      continue;
    }
    left = error;
    break;
  }
  return left;
}

// Maps the place to which pages leave, anew each time: page tables left there would split huge
// pages. It must not stop first touches: the kernel reads holes there on this thread.
bool PagePassage::map_transit() const {
  if (map_without_pages(pointer(window_), kSliceBytes) == MAP_FAILED) return false;
  raw_madvise(pointer(window_), kSliceBytes, MADV_DONTFORK);
  uffdio_register request{};
  request.range = {window_, kSliceBytes};
  request.mode = UFFDIO_REGISTER_MODE_WP;
  return ioctl(own_.userfault, UFFDIO_REGISTER, &request) == 0;
}

void PagePassage::unmap_transit() const {
  raw_mmap(pointer(window_), kSliceBytes, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

// Moves pages from the stash, up to `length`, which becomes what has moved. Returns 0, EBUSY for a
// page that is in the hands of a device, EAGAIN while mappings change, or another errno value; then
// nothing has moved.
int PagePassage::take_out(uint64_t to, uint64_t from, uint64_t& length) const {
  const PageMover mover(own_.userfault, own_.pagemap);
  bool own = false;
  for (int tries = 0; tries < kTakeTries; tries++) {
    uint64_t moved = 0;
    const int error = mover.move_some(to, from, length, moved);
    if (error == 0) {
      length = moved;
      return 0;
    }
    if (error == EAGAIN || error == EINTR) {
      reader_.read(reader_.self);
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
int PagePassage::put_in(uint64_t at, uint64_t source, uint64_t length, uint64_t& done) const {
  uint64_t most = length;  // one page at a time where the place is no longer whole
  int tries = 0;
  for (done = 0; done < length;) {
    uffdio_copy copy{};
    copy.dst = at + done;
    copy.src = source + done;
    copy.len = std::min(most, length - done);
    int error = ioctl(own_.userfault, UFFDIO_COPY, &copy) == 0 ? 0 : errno;
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
      reader_.read(reader_.self);
      let_others_run(tries);
    } else if ((error == ENOMEM || error == EINTR) && ++tries < kMemoryTries) {
      sleep_ns(kMemoryPauseNs);
    } else {
      return error;
    }
  }
  return 0;
}

int PagePassage::copy_into_file(uint64_t page, uint64_t source) const {
  const auto offset = static_cast<off_t>(page);
  if (lseek(own_.mirror, offset, SEEK_DATA) == offset) return 0;
  // A write of what can't be read would leave a page of zeros there (Linux 6.16).
  unsigned char resident = 0;
  if (mincore(pointer(source), kPageBytes, &resident) != 0) return EFAULT;
  const ssize_t written = pwrite(own_.mirror, pointer(source), kPageBytes, offset);
  if (written == kPageBytes) return 0;
  const int error = written >= 0 ? ENOMEM : errno;
  if (error != EFBIG) {
    fallocate(own_.mirror, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, kPageBytes);
    return error;
  }
  // The program limits the size of files that it writes.
  void* to = raw_mmap(pointer(window_ + kSliceBytes), kPageBytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_NORESERVE | MAP_FIXED, own_.mirror, offset);
  if (to == MAP_FAILED) return ENOMEM;
  std::memcpy(to, pointer(source), kPageBytes);
  raw_mmap(to, kPageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
           0);
  return 0;
}

// Pages that had left the stash and could not be put in: they go back to where they will be looked
// for next time. Empty ones are not made there.
void PagePassage::put_back(uint64_t stash, uint64_t transit, uint64_t length) const {
  for (uint64_t at = 0; at < length; at += kPageBytes) {
    const auto* const words = static_cast<const uint64_t*>(pointer(transit + at));
    if (std::any_of(words, words + kPageBytes / sizeof(*words), [](uint64_t w) { return w != 0; }))
      std::memcpy(pointer(stash + at), words, kPageBytes);
  }
}

// Whether a page can't come any more: it is neither in the mirror nor in the stash, whose place the
// program has unmapped.
bool PagePassage::is_lost(uint64_t page, uint64_t source) const {
  unsigned char resident = 0;
  return mincore(pointer(source), kPageBytes, &resident) != 0 && errno == ENOMEM &&
         lseek(own_.mirror, static_cast<off_t>(page), SEEK_DATA) != static_cast<off_t>(page);
}

// An access to a page that is lost fails, the program's (SIGBUS, as with a page whose memory has
// failed) and that of who has a key: zeros would be a lie.
void PagePassage::lose(uint64_t page) const {
  PoisonRequest request{page, kPageBytes, 0, 0};
  ioctl(own_.userfault, kPoisonPages, &request);
  if (lost_ != nullptr) lost_(page, page + kPageBytes);
}

}  // namespace hostnic::memory
