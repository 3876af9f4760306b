// SPDX-License-Identifier: BSD-3-Clause
// Which descriptors of this process are rdma_cm files. Asked before each write() of the program,
// perhaps in a signal handler or before constructors: no lock, no allocation, and for a descriptor
// that never was one no system call.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>

namespace hostnic::cm_device {

// Remembers `fd`, which hostnicd calls `name`. Nobody has to tell when it is closed: a descriptor
// is ours as long as it leads to the same socket. Returns false if there is no memory.
bool add_file(int fd, uint64_t name);
// Notes a copy of a file, after dup() and the like.
void copy_file(int from, int to);

inline constexpr uint32_t kFilesPerChunk = 1024, kChunks = 1024;

struct FileSlot {
  std::atomic<uint64_t> inode{0};  // 0: not ours
  std::atomic<uint64_t> name{0};
};
using FileChunk = std::array<FileSlot, kFilesPerChunk>;

// Chunks come when one is needed and stay.
inline std::array<std::atomic<FileChunk*>, kChunks> file_chunks{};

inline bool may_be_file(int fd) {
  const auto number = static_cast<uint32_t>(fd);
  if (number >= kFilesPerChunk * kChunks) return false;
  const FileChunk* chunk = file_chunks[number / kFilesPerChunk].load(std::memory_order_acquire);
  return chunk != nullptr &&
         (*chunk)[number % kFilesPerChunk].inode.load(std::memory_order_relaxed) != 0;
}

// The name that hostnicd gives the file, for a descriptor that may be one. 0: it has become
// something else.
uint64_t file_name(int fd);

}  // namespace hostnic::cm_device
