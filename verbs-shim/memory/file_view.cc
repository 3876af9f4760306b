// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/file_view.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <string_view>
#include <utility>

#include "verbs-shim/memory/areas.h"
#include "verbs-shim/memory/raw_memory.h"
#include "verbs-shim/memory/shared_files.h"

#ifndef DMA_BUF_MAGIC
#define DMA_BUF_MAGIC 0x444d4142
#endif

namespace hostnic::memory {
namespace {

// What the kernel asks of a dma-buf. Returns 0 or an errno value.
int check_file(int fd, uint64_t offset, size_t length_bytes, uint64_t& page_bytes) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || (flags & O_PATH) != 0) return EBADF;
  struct stat file {};
  struct statfs fs {};
  if (fstat(fd, &file) != 0 || fstatfs(fd, &fs) != 0) return EINVAL;
  if (fs.f_type == DMA_BUF_MAGIC) return EOPNOTSUPP;
  const bool huge = fs.f_type == HUGETLBFS_MAGIC;
  if (!S_ISREG(file.st_mode) || (fs.f_type != TMPFS_MAGIC && !huge)) return EINVAL;
  page_bytes = huge ? static_cast<uint64_t>(fs.f_bsize) : kPageBytes;
  uint64_t end = 0;
  if (length_bytes == 0 || __builtin_add_overflow(offset, length_bytes, &end)) return EINVAL;
  return end <= static_cast<uint64_t>(file.st_size) ? 0 : EINVAL;
}

// The name of a memfd, as /proc shows it; empty: none.
std::string_view memfd_name(std::string_view shown) {
  constexpr std::string_view kPrefix = "/memfd:", kSuffix = " (deleted)";
  if (!shown.starts_with(kPrefix) || !shown.ends_with(kSuffix)) return {};
  shown.remove_prefix(kPrefix.size());
  shown.remove_suffix(kSuffix.size());
  return shown;
}

// A descriptor that can do more than the program's.
UniqueFd reopened(int fd) {
  char path[40];
  std::snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
  return UniqueFd(open(path, O_RDWR | O_CLOEXEC));
}

}  // namespace

FileView::FileView(FileView&& other) noexcept { *this = std::move(other); }

FileView& FileView::operator=(FileView&& other) noexcept {
  std::swap(start_, other.start_);
  std::swap(bytes_, other.bytes_);
  std::swap(address_, other.address_);
  std::swap(fd_, other.fd_);
  return *this;
}

FileView::~FileView() {
  if (start_ != nullptr) raw_munmap(start_, bytes_);
}

Expected<FileView, int> FileView::map(int fd, uint64_t offset, size_t length_bytes, bool writable) {
  uint64_t page_bytes = kPageBytes;
  if (const int error = check_file(fd, offset, length_bytes, page_bytes); error != 0)
    return Unexpected(error);
  FileView view;
  // A dma-buf is written whatever its descriptor was opened for.
  if (writable && (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR) {
    view.fd_ = reopened(fd);
    if (!view.fd_) return Unexpected(EACCES);
    fd = view.fd_.get();
  }
  const uint64_t lead = offset & (page_bytes - 1);
  const uint64_t bytes = (lead + length_bytes + page_bytes - 1) & ~(page_bytes - 1);
  const int protection = PROT_READ | (writable ? PROT_WRITE : 0);
  void* start =
      raw_mmap(nullptr, bytes, protection, MAP_SHARED, fd, static_cast<off_t>(offset - lead));
  if (start == MAP_FAILED) return Unexpected(errno == EPERM ? EACCES : errno);
  madvise(start, bytes, MADV_DONTFORK);
  view.start_ = start;
  view.bytes_ = bytes;
  view.address_ = static_cast<std::byte*>(start) + lead;
  return view;
}

uint64_t exported_start(int fd) {
  char path[40], shown[80];
  std::snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(path, shown, sizeof(shown));
  if (length <= 0) return 0;
  const std::string_view name = memfd_name({shown, static_cast<size_t>(length)});
  if (name != kDeviceMemoryName && name != kDeviceMemoryWithoutPeersName) return 0;
  const off_t position = lseek(fd, 0, SEEK_CUR);
  return position > 0 ? static_cast<uint64_t>(position) : 0;
}

std::optional<DeviceMemory> find_device_memory(uint64_t va, uint64_t length_bytes) {
  const auto room = std::make_unique<TextRoom>();
  Area found;
  for_each_area(*room, [&](const Area& area) {
    if (area.start <= va && va < area.end) found = area;
    return area.end <= va;
  });
  if (!found.shared || length_bytes > found.end - va || found.end == 0) return std::nullopt;
  if (memfd_name(found.path) != kDeviceMemoryName) return std::nullopt;
  found.prot = PROT_READ | PROT_WRITE;  // what the file is asked for
  DeviceMemory memory{UniqueFd(open_shared_file(found)), found.offset + (va - found.start)};
  if (!memory.fd) return std::nullopt;
  return memory;
}

}  // namespace hostnic::memory
