// SPDX-License-Identifier: BSD-3-Clause
// realloc of large blocks, which have a mapping of glibc's each.
#include <cerrno>
#include <cstddef>

#include "verbs-shim/memory/system_calls.h"

namespace hostnic::memory {

// Has a large block grow as glibc's realloc does, which would find several areas where it moves
// one: the mapping is as long then as glibc would make it, and glibc has nothing left to do.
bool SystemCalls::move_block(void*& block, size_t usable_bytes, size_t length) {
  constexpr uint64_t kAlignment = 2 * sizeof(size_t), kFlags = 7;
  const uint64_t words = address(block) - kWordBytes;
  const auto* const chunk = static_cast<const uint64_t*>(pointer(words));
  const uint64_t start = page_down(words - chunk[0]), before = words - start;
  const uint64_t end = words + (chunk[1] & ~kFlags), flags = chunk[1] & kFlags;
  if (end % kPageBytes != 0 || end < address(block) + usable_bytes || length > kMirrorBytes)
    return false;
  const uint64_t bytes = (length + sizeof(size_t) + kAlignment - 1) & ~(kAlignment - 1);
  const uint64_t total = page_up(before + bytes + sizeof(size_t));
  if (total <= end - start) return false;
  const int error = errno;
  void* const moved = mremap(pointer(start), end - start, total, MREMAP_MAYMOVE, nullptr);
  errno = error;
  if (moved == MAP_FAILED) return false;
  block = static_cast<std::byte*>(moved) + (address(block) - start);
  static_cast<uint64_t*>(pointer(address(block) - kWordBytes))[1] = (total - before) | flags;
  return true;
}

}  // namespace hostnic::memory
