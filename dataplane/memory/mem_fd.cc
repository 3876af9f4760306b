// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/memory/mem_fd.h"

#include <sys/types.h>

#include <cerrno>

namespace hostnic {
namespace {

// The kernel answers 0 when the address space has no users left, EIO (or a short count) when the
// address is not mapped, and EINVAL for addresses beyond 2^63.
MemFdResult result_of(ssize_t transferred, size_t wanted) {
  if (transferred == static_cast<ssize_t>(wanted)) return MemFdResult::kOk;
  return transferred == 0 ? MemFdResult::kGone : MemFdResult::kFault;
}

// Runs `transfer(parts, count, offset)`, which is preadv or pwritev. A client that vanishes halfway
// shows as kFault here and as kGone at the next transfer.
template <typename Transfer>
MemFdResult run(std::span<const iovec> parts, VirtualAddress va, Transfer transfer) {
  size_t wanted = 0;
  for (const iovec& part : parts) wanted += part.iov_len;
  if (wanted == 0) return MemFdResult::kOk;
  for (;;) {
    const ssize_t done =
        transfer(parts.data(), static_cast<int>(parts.size()), static_cast<off_t>(va));
    if (done < 0 && errno == EINTR) continue;
    return result_of(done, wanted);
  }
}

}  // namespace

MemFdResult read_client_scatter(int mem_fd, VirtualAddress va, std::span<const iovec> parts) {
  return run(parts, va, [mem_fd](const iovec* iov, int count, off_t offset) {
    return preadv(mem_fd, iov, count, offset);
  });
}

MemFdResult write_client_gather(int mem_fd, VirtualAddress va, std::span<const iovec> parts) {
  return run(parts, va, [mem_fd](const iovec* iov, int count, off_t offset) {
    return pwritev(mem_fd, iov, count, offset);
  });
}

MemFdResult read_client(int mem_fd, VirtualAddress va, std::span<std::byte> to) {
  const iovec part{to.data(), to.size()};
  return read_client_scatter(mem_fd, va, {&part, 1});
}

MemFdResult write_client(int mem_fd, VirtualAddress va, std::span<const std::byte> from) {
  const iovec part{const_cast<std::byte*>(from.data()), from.size()};
  return write_client_gather(mem_fd, va, {&part, 1});
}

}  // namespace hostnic
