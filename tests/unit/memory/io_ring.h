// SPDX-License-Identifier: BSD-3-Clause
// An io_uring that reads one thing at a time, by bare system calls.
#pragma once

#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>

namespace hostnic::memory_testing {

class IoRing {
 public:
  IoRing() {
    io_uring_params params{};
    fd_ = static_cast<int>(syscall(SYS_io_uring_setup, 4, &params));
    if (fd_ < 0) return;
    sq_ = map(params.sq_off.array + params.sq_entries * sizeof(uint32_t), IORING_OFF_SQ_RING);
    cq_ = map(params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe), IORING_OFF_CQ_RING);
    entries_ = reinterpret_cast<io_uring_sqe*>(
        map(params.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES));
    params_ = params;
  }
  ~IoRing() {
    if (fd_ >= 0) close(fd_);
  }
  IoRing(const IoRing&) = delete;
  IoRing& operator=(const IoRing&) = delete;
  bool works() const { return fd_ >= 0; }

  // Has the kernel pin a buffer. Returns 0 or an errno value.
  int pin(void* at, size_t length) {
    const iovec buffer{at, length};
    return syscall(SYS_io_uring_register, fd_, IORING_REGISTER_BUFFERS, &buffer, 1) == 0 ? 0
                                                                                         : errno;
  }
  void unpin() const { syscall(SYS_io_uring_register, fd_, IORING_UNREGISTER_BUFFERS, nullptr, 0); }
  // Reads at offset 0 of a file, into the pinned buffer with IORING_OP_READ_FIXED. Returns the
  // result, negative errno values included.
  int read(int file, void* to, uint32_t length, uint8_t opcode = IORING_OP_READ) {
    io_uring_sqe& entry = entries_[0];
    std::memset(&entry, 0, sizeof(entry));
    entry.opcode = opcode;
    entry.fd = file;
    entry.off = opcode == IORING_OP_RECV ? 0 : UINT64_MAX;
    if (opcode == IORING_OP_READ_FIXED) entry.off = 0;
    entry.addr = reinterpret_cast<uint64_t>(to);
    entry.len = length;
    word(sq_, params_.sq_off.array) = 0;
    std::atomic_ref(word(sq_, params_.sq_off.tail)).fetch_add(1, std::memory_order_release);
    if (syscall(SYS_io_uring_enter, fd_, 1, 1, IORING_ENTER_GETEVENTS, nullptr, 0) < 0)
      return -errno;
    std::atomic_ref head(word(cq_, params_.cq_off.head));
    while (head.load() == std::atomic_ref(word(cq_, params_.cq_off.tail)).load())
      syscall(SYS_io_uring_enter, fd_, 0, 1, IORING_ENTER_GETEVENTS, nullptr, 0);
    const auto* done = reinterpret_cast<const io_uring_cqe*>(cq_ + params_.cq_off.cqes);
    const int result = done[head.load() & (params_.cq_entries - 1)].res;
    head.fetch_add(1, std::memory_order_release);
    return result;
  }

 private:
  std::byte* map(size_t length, uint64_t offset) const {
    return static_cast<std::byte*>(mmap(nullptr, length, PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_POPULATE, fd_,
                                        static_cast<off_t>(offset)));
  }
  static uint32_t& word(std::byte* ring, uint32_t offset) {
    return *reinterpret_cast<uint32_t*>(ring + offset);
  }

  int fd_ = -1;
  io_uring_params params_{};
  std::byte *sq_ = nullptr, *cq_ = nullptr;
  io_uring_sqe* entries_ = nullptr;
};

}  // namespace hostnic::memory_testing
