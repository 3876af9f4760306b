// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/packet/copy_blocks.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace hostnic {

struct CopyBlocks::Pool {
  std::mutex mutex;
  std::vector<std::unique_ptr<Set>> released;
};

CopyBlocks::Pool& CopyBlocks::pool() {
  static Pool* const pool = new Pool;  // never deleted, for packets that are freed while the
                                       // process ends
  return *pool;
}

bool CopyBlocks::Set::any_out() const {
  return std::ranges::any_of(regions, [](const MemoryRegionEntry& region) {
    return region.mbufs_out.load(std::memory_order_acquire) != 0;
  });
}

CopyBlocks::CopyBlocks() {
  Pool& p = pool();
  const std::lock_guard lock(p.mutex);
  const auto at = std::ranges::find_if(p.released, [](const auto& set) { return !set->any_out(); });
  if (at == p.released.end()) {
    set_ = std::make_unique<Set>();
  } else {
    set_ = std::move(*at);
    p.released.erase(at);
  }
}

CopyBlocks::~CopyBlocks() {
  Pool& p = pool();
  const std::lock_guard lock(p.mutex);
  p.released.push_back(std::move(set_));
}

}  // namespace hostnic
