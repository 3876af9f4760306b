// SPDX-License-Identifier: BSD-3-Clause
// The library's own mapping of memory that the program has as a file: a dma-buf, for which a memfd
// stands here, or memory of the stand-in for GPUs (libhostnic-gpu), which the program can't touch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "protocol/expected.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic::memory {

class FileView {
 public:
  FileView() = default;
  FileView(FileView&& other) noexcept;
  FileView& operator=(FileView&& other) noexcept;
  ~FileView();

  // Maps `length_bytes` of a file from `offset` on; any thread. `fd` is the caller's, and may be
  // anything. An error is an errno value, the kernel's for a dma-buf: EBADF for no descriptor,
  // EINVAL for one that is no memory, for length 0, or for what lies beyond the end; EACCES for
  // `writable` of what can't be written; EOPNOTSUPP for a dma-buf of the kernel's; ENOMEM.
  static Expected<FileView, int> map(int fd, uint64_t offset, size_t length_bytes, bool writable);

  void* address() const { return address_; }  // of the first byte; null: of nothing

 private:
  void* start_ = nullptr;
  size_t bytes_ = 0;
  void* address_ = nullptr;
  UniqueFd fd_;  // leads hostnicd to the file, where the program's own can't be written
};

// A part of a GPU's memory: where it lies in its file.
struct DeviceMemory {
  UniqueFd fd;
  uint64_t offset = 0;
};
// The names of these files. The latter's memory is no peer's: it is registered by dma-buf only, as
// where nvidia_peermem is not loaded.
inline constexpr std::string_view kDeviceMemoryName = "hostnic-gpu";
inline constexpr std::string_view kDeviceMemoryWithoutPeersName = "hostnic-gpu-nopeer";

// Where the dma-buf that a descriptor stands for begins in its file: libhostnic-gpu exports parts
// of an allocation, and says it by the descriptor's position. 0 for any other file.
uint64_t exported_start(int fd);

// Looks whether [va, va + length_bytes) is a GPU's memory. Reads /proc, and throws std::bad_alloc;
// any thread.
std::optional<DeviceMemory> find_device_memory(uint64_t va, uint64_t length_bytes);

}  // namespace hostnic::memory
