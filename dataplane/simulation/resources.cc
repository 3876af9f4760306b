// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/simulation/resources.h"

#include <fmt/format.h>
#include <rte_lcore.h>
#include <sys/mman.h>

#include <algorithm>
#include <compare>
#include <cstring>
#include <map>

namespace hostnic::sim {
namespace {

constexpr size_t kPageBytes = 4096;

}  // namespace

// ---- memory

namespace {

constexpr uint8_t kSurroundings = 0xA5;

// Worlds come and go by the thousand, and fresh pages are what costs most about one.
std::multimap<size_t, uint8_t*>& unused_mappings() {
  static std::multimap<size_t, uint8_t*> mappings;
  return mappings;
}

uint8_t* take_mapping(size_t bytes) {
  auto& unused = unused_mappings();
  if (const auto it = unused.find(bytes); it != unused.end()) {
    uint8_t* mapping = it->second;
    unused.erase(it);
    return mapping;
  }
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(at != MAP_FAILED, "mmap of memory");
  return static_cast<uint8_t*>(at);
}

bool all_equal(const uint8_t* bytes, size_t count, uint8_t value) {
  return count == 0 || (bytes[0] == value && std::memcmp(bytes, bytes + 1, count - 1) == 0);
}

}  // namespace

Memory::Memory(size_t bytes, uint8_t fill, size_t misalign)
    : mapping_bytes_((2 * kPageBytes + misalign + bytes + kPageBytes - 1) & ~(kPageBytes - 1)),
      bytes_(bytes) {
  mapping_ = take_mapping(mapping_bytes_);
  data_ = mapping_ + kPageBytes + misalign;
  std::memset(mapping_, kSurroundings, kPageBytes + misalign);
  std::memset(data_, fill, bytes_);
  uint8_t* const end = data_ + bytes_;
  std::memset(end, kSurroundings, static_cast<size_t>(mapping_ + mapping_bytes_ - end));
}
Memory::~Memory() { unused_mappings().emplace(mapping_bytes_, mapping_); }

bool Memory::surroundings_intact() const {
  const uint8_t* const end = data_ + bytes_;
  return all_equal(mapping_, static_cast<size_t>(data_ - mapping_), kSurroundings) &&
         all_equal(end, static_cast<size_t>(mapping_ + mapping_bytes_ - end), kSurroundings);
}

// ---- packet buffers

namespace {

// Creating pools takes longer than most simulations. They are kept by what makes them different;
// pools that did not get all their buffers back are not used again.
struct PoolKind {
  uint32_t mtu_bytes;
  double scale;
  auto operator<=>(const PoolKind&) const = default;
};
std::map<PoolKind, MbufPools>& unused_pools() {
  static std::map<PoolKind, MbufPools> pools;
  return pools;
}

}  // namespace

std::array<rte_mempool*, 5> all_of(const MbufPools& pools) {
  return {pools.header, pools.data, pools.control, pools.resend, pools.copies};
}

MbufPools take_pools(uint32_t mtu_bytes, double scale) {
  static uint32_t number = 0;
  auto& unused = unused_pools();
  if (const auto it = unused.find({mtu_bytes, scale}); it != unused.end()) {
    const MbufPools pools = it->second;
    unused.erase(it);
    return pools;
  }
  return create_mbuf_pools(fmt::format("sim{}", number++), mtu_bytes, scale, SOCKET_ID_ANY);
}

void give_pools(uint32_t mtu_bytes, double scale, MbufPools& pools) {
  const auto all = all_of(pools);
  const bool whole = std::all_of(all.begin(), all.end(),
                                 [](const auto* pool) { return rte_mempool_full(pool) == 1; });
  if (!whole || !unused_pools().try_emplace({mtu_bytes, scale}, pools).second)
    free_mbuf_pools(pools);
}

void free_unused() {
  for (auto& [kind, pools] : unused_pools()) free_mbuf_pools(pools);
  unused_pools().clear();
  for (const auto& [bytes, mapping] : unused_mappings()) munmap(mapping, bytes);
  unused_mappings().clear();
}

}  // namespace hostnic::sim
