// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/abi/buffers.h"

#include <sys/mman.h>

#include <unordered_map>

#include "verbs-shim/abi/exports.h"
#include "verbs-shim/abi/real_verbs.h"
#include "verbs-shim/abi/registry.h"

using namespace hostnic::abi;

namespace {

struct Buffer {
  ibv_pd* pd;
  void* address;
  size_t size_bytes;
};

// All buffers [registry], by the handles that programs have. It is never destroyed.
std::unordered_map<const void*, Buffer>& buffers() {
  static auto& instance = *new std::unordered_map<const void*, Buffer>;
  return instance;
}

bool is_our_buffer(const ibv_buf* buffer) {
  ObjectLock lock = lock_objects();
  return buffers().contains(buffer);
}

// A handle is an address that nobody else has: that of the memory.
void* allocate(ibv_pd* pd, size_t size_bytes, ibv_buf** handle) {
  if (size_bytes == 0) return fail_null(EINVAL);
  void* memory =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return fail_null(ENOMEM);
  try {
    ObjectLock lock = lock_objects();
    buffers()[memory] = {pd, memory, size_bytes};
  } catch (const std::bad_alloc&) {
    munmap(memory, size_bytes);
    return fail_null(ENOMEM);
  }
  *handle = static_cast<ibv_buf*>(memory);
  return memory;
}

}  // namespace

bool hostnic::abi::is_in_buffer(const ibv_buf* buffer, const ibv_pd* pd, const void* address,
                                size_t length) {
  ObjectLock lock = lock_objects();
  const auto found = buffers().find(buffer);
  if (found == buffers().end() || found->second.pd != pd) return false;
  const auto begin = reinterpret_cast<uintptr_t>(found->second.address);
  const auto at = reinterpret_cast<uintptr_t>(address);
  return at >= begin && at - begin <= found->second.size_bytes &&
         length <= found->second.size_bytes - (at - begin);
}

HOSTNIC_VERB void* ibv_alloc_buf(ibv_pd* pd, size_t size, ibv_buf** buffer) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<void*(ibv_pd*, size_t, ibv_buf**)> real("ibv_alloc_buf",
                                                                    "IBVERBS_1.17");
  if (!is_ours(Kind::kPd, pd)) return real.foreign(pd, size, buffer);
  return allocate(pd, size, buffer);
}

// The buffer's regions are the program's to deregister before; they keep their pages, as those of
// any memory that is unmapped.
HOSTNIC_VERB void ibv_free_buf(ibv_buf* buffer) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<void(ibv_buf*)> real("ibv_free_buf", "IBVERBS_1.17");
  Buffer freed{};
  {
    ObjectLock lock = lock_objects();
    const auto found = buffers().find(buffer);
    if (found != buffers().end()) {
      freed = found->second;
      buffers().erase(found);
    }
  }
  if (freed.address == nullptr) return real.foreign(buffer);
  munmap(freed.address, freed.size_bytes);
}

HOSTNIC_VERB int ibv_export_buf_dmabuf_fd(ibv_buf* buffer) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_buf*)> real("ibv_export_buf_dmabuf_fd", "IBVERBS_1.18");
  if (!is_our_buffer(buffer)) {
    const int fd = real.foreign(buffer);
    return fd == ENOENT || fd == ENOSYS ? -1 : fd;  // what it is where nobody has been asked
  }
  errno = ENODATA;  // plain memory
  return -1;
}

HOSTNIC_VERB ibv_mr* ibv_reg_buf_mr(ibv_pd* pd, ibv_buf* buffer, void* address, size_t length,
                                    int access) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<ibv_mr*(ibv_pd*, ibv_buf*, void*, size_t, int)> real("ibv_reg_buf_mr",
                                                                                 "IBVERBS_1.17");
  if (!is_ours(Kind::kPd, pd)) return real.foreign(pd, buffer, address, length, access);
  if (!is_in_buffer(buffer, pd, address, length)) return fail_null(EINVAL);
  return (ibv_reg_mr_iova2)(pd, address, length, reinterpret_cast<uint64_t>(address),
                            static_cast<unsigned int>(access));
}
