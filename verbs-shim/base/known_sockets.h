// SPDX-License-Identifier: BSD-3-Clause
// Which descriptors of this process are sockets that stand for something else: rdma_cm files, and
// sockets of RDMA netlink. Asked before each write() and recv() of the program, perhaps in a signal
// handler or before constructors: no lock, no allocation, and for a descriptor whose number never
// was one's no system call.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>

namespace hostnic {

enum class SocketKind : uint8_t { kCm, kNetlink };

// Remembers `fd` by a name, which is not 0. Nobody has to tell when it is closed: a descriptor is
// known as long as it leads to the same socket. Returns false if there is no memory.
bool add_known(int fd, SocketKind kind, uint64_t name);
// Notes a copy, after dup() and the like.
void copy_known(int from, int to);

inline constexpr uint32_t kSocketsPerChunk = 1024, kKnownChunks = 1024;

struct KnownSocket {
  std::atomic<uint64_t> inode{0};  // 0: none is known
  std::atomic<uint64_t> name{0};
  std::atomic<SocketKind> kind{SocketKind::kCm};
};
using KnownChunk = std::array<KnownSocket, kSocketsPerChunk>;

// Chunks come when one is needed and stay.
inline std::array<std::atomic<KnownChunk*>, kKnownChunks> known_chunks{};

inline bool may_be_known(int fd) {
  const auto number = static_cast<uint32_t>(fd);
  if (number >= kSocketsPerChunk * kKnownChunks) return false;
  const KnownChunk* chunk = known_chunks[number / kSocketsPerChunk].load(std::memory_order_acquire);
  return chunk != nullptr &&
         (*chunk)[number % kSocketsPerChunk].inode.load(std::memory_order_relaxed) != 0;
}

// The name of a descriptor that may be known. 0: it is none of that kind, or has become something
// else.
uint64_t known_name(int fd, SocketKind kind);

}  // namespace hostnic
