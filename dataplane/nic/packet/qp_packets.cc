// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/packet/qp_packets.h"

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

namespace hostnic {
namespace {

constexpr size_t kCountsPerBlock = 1024;

// The counts belong to the process: packets may outlive the NIC of their QP.
struct Pool {
  std::mutex mutex;
  std::vector<std::unique_ptr<PacketCount[]>> blocks;
  size_t used_of_last = kCountsPerBlock;
  std::deque<PacketCount*> released;  // oldest first
};

Pool& pool() {
  static Pool* const pool = new Pool;  // never deleted, for packets that are freed while the
                                       // process ends
  return *pool;
}

}  // namespace

PacketCount* PacketCount::acquire() {
  Pool& p = pool();
  const std::lock_guard lock(p.mutex);
  PacketCount* count = nullptr;
  if (!p.released.empty()) {
    PacketCount* const oldest = p.released.front();
    p.released.pop_front();
    if (!oldest->any()) {
      count = oldest;
    } else {
      p.released.push_back(oldest);
    }
  }
  if (count == nullptr) {
    if (p.used_of_last == kCountsPerBlock) {
      p.blocks.push_back(std::make_unique<PacketCount[]>(kCountsPerBlock));
      p.used_of_last = 0;
    }
    count = &p.blocks.back()[p.used_of_last++];
  }
  count->owners_.store(0, std::memory_order_relaxed);
  count->others_.store(0, std::memory_order_relaxed);
  count->owner_.store(this_thread(), std::memory_order_relaxed);
  count->holders_ = 1;
  return count;
}

void PacketCount::release(PacketCount* count) {
  Pool& p = pool();
  const std::lock_guard lock(p.mutex);
  p.released.push_back(count);
}

}  // namespace hostnic
