// SPDX-License-Identifier: BSD-3-Clause
// How a client describes registered memory to hostnicd: an ordered list of regions which cover
// [va, va + length) without gap or overlap. Sent by value on the control socket, so every field is
// untrusted on hostnicd's side (ClientMemory::map checks them).
//
// A late region's pages come into the mirror after the registration, slice by slice. The process's
// fill map, a memfd of one SliceState a slice that both sides map, says which are there: the client
// stores kFilled, with release order, when all pages of a slice are in the mirror; hostnicd touches
// no page of the slice before, and stores kWanted where it has found kAside and waits. What is
// wanted is filled first, and everything by and by: nobody is waked. When all of a region is filled
// the client says so (ControlKind::kMemoryFilled).
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <type_traits>

namespace hostnic {

enum class RegionKind : uint32_t {
  kMemFd,   // reached by pread/pwrite on the client's /proc/self/mem descriptor, offset = va
  kMirror,  // lives in the client's mirror file at offset va; hostnicd maps it
  kFile,    // shared memory of the application's own: hostnicd maps fds[file_index] at file_offset
  kMirrorLate,  // as kMirror, whole slices, each of which is there once the fill map says so:
                // fds[file_index], in which the first slice's state lies at file_offset
};

// Whether regions of this kind name one of the descriptors that are sent along.
constexpr bool names_file(RegionKind kind) {
  return kind == RegionKind::kFile || kind == RegionKind::kMirrorLate;
}

// What the pages of late regions come into the mirror by; it begins at a multiple of its length.
inline constexpr uint64_t kSliceBytes = uint64_t{2} << 20;

// A byte of the fill map, accessed as an atomic one.
enum class SliceState : uint8_t {
  kFilled = 0,  // all pages are in the mirror
  kAside = 1,   // the pages are not in the mirror yet
  kWanted = 2,  // nor are these, and hostnicd waits for them
};
// What a byte of the fill map says. Pages may be touched after it has said kFilled.
inline SliceState slice_state(uint8_t& slice) {
  return static_cast<SliceState>(std::atomic_ref(slice).load(std::memory_order_acquire));
}

struct MemoryRegion {
  uint64_t va = 0;  // in the client's address space
  uint64_t length_bytes = 0;
  RegionKind kind = RegionKind::kMemFd;
  uint32_t file_index = 0;   // kFile, kMirrorLate: which of the descriptors sent along
  uint64_t file_offset = 0;  // kFile: where va's byte lies in that file; kMirrorLate: its state
};
static_assert(sizeof(MemoryRegion) == 32 && std::is_trivially_copyable_v<MemoryRegion>);

// What has become of memory that the client had mapped.
enum class MemoryChangeKind : uint32_t {
  kGone,     // it is no longer there: an access is answered as one to memory that is not there
  kMoved,    // it is at `moved_to` now, byte by byte, and keys lead there
  kOutside,  // it leaves the mirror: it is reached through the mem fd from now on
};

// A change of the client's mappings at [va, va + length_bytes). Its regions keep their keys. kGone
// and kMoved concern what is reached through the mem fd: mapped memory has its pages still.
// kOutside concerns what is in the mirror. On-demand regions, which promise to follow by
// themselves, are never concerned.
struct MemoryChange {
  uint64_t va = 0;
  uint64_t length_bytes = 0;
  MemoryChangeKind kind = MemoryChangeKind::kGone;
  uint32_t reserved = 0;
  uint64_t moved_to = 0;  // kMoved; else 0
};
static_assert(sizeof(MemoryChange) == 32 && std::is_trivially_copyable_v<MemoryChange>);

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
