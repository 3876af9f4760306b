// SPDX-License-Identifier: BSD-3-Clause
// AccessScope says whose memory may be touched: a key is checked against it.
#pragma once

#include <cstdint>

namespace hostnic {

struct AccessScope {
  uint32_t client_id;
  uint32_t pd;
  uint32_t rights;  // AccessFlag: what peers may do by this queue pair
  uint32_t qpn;     // type 2 windows are one queue pair's
};

// Memory that a key names: the region, if it may be used, and where in it.
struct MemoryRegionEntry;
struct RemoteRange {
  MemoryRegionEntry* region = nullptr;
  uint64_t iova = 0;
};

}  // namespace hostnic
