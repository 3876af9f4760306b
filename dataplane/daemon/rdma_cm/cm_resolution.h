// SPDX-License-Identifier: BSD-3-Clause
// rdma_cm's way to a destination: which NIC leads there, and whether anybody is there. The control
// thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/daemon/network/kernel_neighbour.h"
#include "dataplane/daemon/rdma_cm/cm_addresses.h"
#include "dataplane/daemon/rdma_cm/cm_ids.h"

namespace hostnic {

class CmResolution {
 public:
  CmResolution(CmIds& ids, CmAddresses& addresses) : ids_(ids), addresses_(addresses) {}
  CmResolution(const CmResolution&) = delete;
  CmResolution& operator=(const CmResolution&) = delete;

  // RESOLVE_IP and RESOLVE_ADDR: the addresses are sockaddrs of a program's.
  CmResult resolve_address(CmFile& file, uint32_t handle, uint32_t timeout_ms,
                           std::span<const std::byte> source,
                           std::span<const std::byte> destination);
  // Tells programs of hosts that have answered, or have not for too long.
  void look();
  // When that is due; UINT64_MAX: never.
  TimeNs deadline_ns() const { return resolving_.empty() ? UINT64_MAX : look_ns_; }

 private:
  bool knows(CmId& id, TimeNs now);
  void end(CmId& id, int error);

  CmIds& ids_;
  CmAddresses& addresses_;
  // The ids whose destination is being looked for, and when to look again.
  std::vector<uint32_t> resolving_;
  TimeNs look_ns_ = 0;
  KernelNeighbours neighbours_;
};

}  // namespace hostnic
