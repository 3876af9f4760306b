// SPDX-License-Identifier: BSD-3-Clause
// How a client describes registered memory to hostnicd: an ordered list of regions which cover
// [va, va + length) without gap or overlap. Sent by value on the control socket, so every field is
// untrusted on hostnicd's side (ClientMemory::map checks them).
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

namespace hostnic {

enum class RegionKind : uint32_t {
  kMemFd,   // reached by pread/pwrite on the client's /proc/self/mem descriptor, offset = va
  kMirror,  // lives in the client's mirror file at offset va; hostnicd maps it
  kFile,    // shared memory of the application's own: hostnicd maps fds[file_index] at file_offset
};

struct MemoryRegion {
  uint64_t va = 0;  // in the client's address space
  uint64_t length_bytes = 0;
  RegionKind kind = RegionKind::kMemFd;
  uint32_t file_index = 0;   // kFile: which of the descriptors sent along with the registration
  uint64_t file_offset = 0;  // kFile: where va's byte lies in that file
};
static_assert(sizeof(MemoryRegion) == 32 && std::is_trivially_copyable_v<MemoryRegion>);

// The mirror's size: file offset == virtual address, so it spans the user half of a 48-bit address
// space. tmpfs takes any size; the file is sparse.
inline constexpr uint64_t kMirrorBytes = uint64_t{1} << 48;

// Whether `regions` covers [va, va + length_bytes) exactly, in order, without empty regions or
// wrap-around.
constexpr bool covers_exactly(std::span<const MemoryRegion> regions, uint64_t va,
                              uint64_t length_bytes) {
  uint64_t at = va;
  for (const MemoryRegion& region : regions) {
    if (region.va != at || region.length_bytes == 0) return false;
    if (__builtin_add_overflow(at, region.length_bytes, &at)) return false;
  }
  return !regions.empty() && at - va == length_bytes;
}

}  // namespace hostnic
