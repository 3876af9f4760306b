// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/hostif/shared_fence.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace hostnic {
namespace {

bool membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0) == 0; }

}  // namespace

bool takes_shared_fences() {
  static const bool takes = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
                            membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);
  return takes;
}

bool fence_processes() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}

bool fence_own_threads() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

}  // namespace hostnic
