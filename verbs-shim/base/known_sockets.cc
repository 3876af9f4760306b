// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/base/known_sockets.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <new>

namespace hostnic {
namespace {

KnownSocket& slot_of(KnownChunk& chunk, int fd) {
  return chunk[static_cast<uint32_t>(fd) % kSocketsPerChunk];
}

KnownChunk* chunk_of(int fd) {
  const auto number = static_cast<uint32_t>(fd);
  if (number >= kSocketsPerChunk * kKnownChunks) return nullptr;
  auto& place = known_chunks[number / kSocketsPerChunk];
  KnownChunk* chunk = place.load(std::memory_order_acquire);
  if (chunk != nullptr) return chunk;
  auto* fresh = new (std::nothrow) KnownChunk;
  if (fresh == nullptr || place.compare_exchange_strong(chunk, fresh)) return fresh;
  delete fresh;  // another thread was faster
  return chunk;
}

// The inode of a socket; 0: no socket. It is not read by fstat(), which lies about our files.
uint64_t socket_inode(int fd) {
  const int saved_errno = errno;
  struct stat status;
  const bool is_socket =
      syscall(SYS_newfstatat, fd, "", &status, AT_EMPTY_PATH) == 0 && S_ISSOCK(status.st_mode);
  errno = saved_errno;
  return is_socket ? status.st_ino : 0;
}

}  // namespace

bool add_known(int fd, SocketKind kind, uint64_t name) {
  KnownChunk* chunk = chunk_of(fd);
  const uint64_t inode = socket_inode(fd);
  if (chunk == nullptr || inode == 0) return false;
  KnownSocket& slot = slot_of(*chunk, fd);
  slot.kind.store(kind, std::memory_order_relaxed);
  slot.name.store(name, std::memory_order_relaxed);
  slot.inode.store(inode, std::memory_order_release);
  return true;
}

void copy_known(int from, int to) {
  if (!may_be_known(from)) return;
  for (const SocketKind kind : {SocketKind::kCm, SocketKind::kNetlink})
    if (const uint64_t name = known_name(from, kind)) add_known(to, kind, name);
}

uint64_t known_name(int fd, SocketKind kind) {
  if (!may_be_known(fd)) return 0;
  KnownSocket& slot =
      slot_of(*known_chunks[static_cast<uint32_t>(fd) / kSocketsPerChunk].load(), fd);
  const uint64_t name = slot.name.load(std::memory_order_relaxed);
  const SocketKind its_kind = slot.kind.load(std::memory_order_relaxed);
  const uint64_t inode = slot.inode.load(std::memory_order_acquire);
  // A number that leads elsewhere stays known: it may do so for the asker alone, a child of vfork()
  // or a thread with a table of descriptors of its own (memory/late_fill_thread.cc).
  return inode != 0 && inode == socket_inode(fd) && kind == its_kind ? name : 0;
}

}  // namespace hostnic
