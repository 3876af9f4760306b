// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/page_mover.h"

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "verbs-shim/memory/raw_memory.h"

namespace hostnic::memory {
namespace {

// The request, which older headers don't have.
struct MoveRequest {
  uint64_t to, from, length_bytes, mode;
  int64_t moved_bytes;
};
constexpr unsigned long kMovePages = _IOWR(0xAA, 0x05, MoveRequest);
constexpr uint64_t kHolesAllowed = 1 << 1;

}  // namespace

// Linux 6.18 loses count where it meets a page that it is just moving itself (compaction): it moves
// the page and those that follow, finds them at their place as if they had been there before, and
// says EEXIST, or how far it had got before them. They have moved if they are no longer where they
// were.
int PageMover::move_some(uint64_t to, uint64_t from, uint64_t length_bytes,
                         uint64_t& moved_bytes) const {
  MoveRequest request{to, from, length_bytes, kHolesAllowed, 0};
  moved_bytes = length_bytes;
  if (ioctl(userfault_, kMovePages, &request) == 0) return 0;
  const int error = errno;
  moved_bytes = request.moved_bytes > 0 ? static_cast<uint64_t>(request.moved_bytes) : 0;
  if (moved_bytes != 0) return 0;
  if (error != EEXIST) return error;
  moved_bytes = first_content(from, from + length_bytes) - from;
  return moved_bytes != 0 ? 0 : EEXIST;
}

// The first page of the range that has content; `end` if none has.
uint64_t PageMover::first_content(uint64_t start, uint64_t end) const {
  constexpr uint64_t kEntries = 512;
  uint64_t entries[kEntries];
  for (uint64_t at = start; at < end;) {
    const uint64_t pages = std::min(kEntries, (end - at) / kPageBytes);
    const auto bytes = static_cast<ssize_t>(pages * sizeof(entries[0]));
    if (pread(pagemap_, entries, static_cast<size_t>(bytes),
              static_cast<off_t>(at / kPageBytes * sizeof(entries[0]))) != bytes)
      return at;
    const auto* const found = std::find_if(entries, entries + pages, has_content);
    at += static_cast<uint64_t>(found - entries) * kPageBytes;
    if (found != entries + pages) return at;
  }
  return end;
}

}  // namespace hostnic::memory
