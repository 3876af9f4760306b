// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/cm/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <new>

namespace hostnic::cm_device {
namespace {

FileSlot& slot_of(FileChunk& chunk, int fd) {
  return chunk[static_cast<uint32_t>(fd) % kFilesPerChunk];
}

FileChunk* chunk_of(int fd) {
  const auto number = static_cast<uint32_t>(fd);
  if (number >= kFilesPerChunk * kChunks) return nullptr;
  auto& place = file_chunks[number / kFilesPerChunk];
  FileChunk* chunk = place.load(std::memory_order_acquire);
  if (chunk != nullptr) return chunk;
  auto* fresh = new (std::nothrow) FileChunk;
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

bool add_file(int fd, uint64_t name) {
  FileChunk* chunk = chunk_of(fd);
  const uint64_t inode = socket_inode(fd);
  if (chunk == nullptr || inode == 0) return false;
  FileSlot& slot = slot_of(*chunk, fd);
  slot.name.store(name, std::memory_order_relaxed);
  slot.inode.store(inode, std::memory_order_release);
  return true;
}

void copy_file(int from, int to) {
  if (!may_be_file(from)) return;
  if (const uint64_t name = file_name(from)) add_file(to, name);
}

uint64_t file_name(int fd) {
  if (!may_be_file(fd)) return 0;
  FileSlot& slot = slot_of(*file_chunks[static_cast<uint32_t>(fd) / kFilesPerChunk].load(), fd);
  const uint64_t name = slot.name.load(std::memory_order_relaxed);
  uint64_t inode = slot.inode.load(std::memory_order_acquire);
  if (inode != 0 && inode == socket_inode(fd)) return name;
  // The descriptor's number has gone to another file. A thread that makes it ours right now writes
  // another inode.
  slot.inode.compare_exchange_strong(inode, 0);
  return 0;
}

}  // namespace hostnic::cm_device
