// SPDX-License-Identifier: BSD-3-Clause
// A file's bytes, to be read only.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace hostnic::elf {

class MappedFile {
 public:
  // Maps a regular file as the dynamic linker maps libraries, which are not truncated while in use.
  explicit MappedFile(const char* path) {
    const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    struct stat status;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
      open_ = true;
      map(fd, static_cast<size_t>(status.st_size));
    }
    ::close(fd);
  }
  ~MappedFile() {
    if (size_ != 0) munmap(const_cast<char*>(bytes_), size_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  bool is_open() const { return open_; }
  const char* bytes() const { return bytes_; }
  size_t size() const { return size_; }
  // Reads the T at `offset`; returns false, and `value` stays, where the file ends before.
  template <typename T>
  bool read(uint64_t offset, T& value) const {
    if (offset > size_ || sizeof(T) > size_ - offset) return false;
    memcpy(&value, bytes_ + offset, sizeof(T));
    return true;
  }

 private:
  void map(int fd, size_t size) {
    void* at = size == 0 ? MAP_FAILED : mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED) return;
    bytes_ = static_cast<const char*>(at);
    size_ = size;
  }

  bool open_ = false;
  const char* bytes_ = nullptr;
  size_t size_ = 0;
};

}  // namespace hostnic::elf
