// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/own_process.h"

#include "verbs-shim/memory/raw_memory.h"

namespace hostnic::memory {

bool OwnProcess::set() {
  if (word_.load() == nullptr) {
    void* page =
        raw_mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return false;
    if (raw_madvise(page, kPageBytes, MADV_WIPEONFORK) != 0) {
      raw_munmap(page, kPageBytes);
      return false;
    }
    word_.store(new (page) std::atomic<uint32_t>(1), std::memory_order_release);
  }
  word_.load()->store(1, std::memory_order_relaxed);
  return true;
}

}  // namespace hostnic::memory
