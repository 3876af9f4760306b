// SPDX-License-Identifier: BSD-3-Clause
// What a simulation needs of its process: packet buffers, memory with a margin.
#pragma once

#include <rte_mempool.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "dataplane/nic/nic.h"

namespace hostnic::sim {

inline void require(bool good, const std::string& what) {
  if (!good) throw std::runtime_error(what);
}

// Bytes of a simulated program, `misalign` bytes behind the start of a page. Around them lie bytes
// that no region contains and nobody may write.
class Memory {
 public:
  explicit Memory(size_t bytes, uint8_t fill = 0, size_t misalign = 0);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  uint8_t* data() const { return data_; }
  size_t size() const { return bytes_; }
  uint64_t address(uint64_t offset = 0) const { return reinterpret_cast<uint64_t>(data_) + offset; }
  // Whether the bytes around are as they were.
  bool surroundings_intact() const;

 private:
  uint8_t* mapping_;
  size_t mapping_bytes_;
  uint8_t* data_;
  size_t bytes_;
};

// Packet pools, used again when they have all their buffers.
MbufPools take_pools(uint32_t mtu_bytes, double scale);
void give_pools(uint32_t mtu_bytes, double scale, MbufPools& pools);
std::array<rte_mempool*, 5> all_of(const MbufPools& pools);

// Gives back pools and memory that are kept for the next world. Before EAL ends.
void free_unused();

}  // namespace hostnic::sim
