// SPDX-License-Identifier: BSD-3-Clause
// What libhostnic-verbs.so has for libmrc.so (mrc/), beside the verbs: whether a device speaks MRC,
// and what a queue pair of MRC can be told that verbs have no attribute for. Both libraries are of
// one build. For any thread; errno stays.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "protocol/transport_kind.h"
#include "protocol/types.h"

namespace hostnic {

// A device of ours, as far as MRC asks.
struct MrcDevice {
  char name[16];
  Transport transport;  // that of RC
  uint32_t window;      // PSNs
  uint32_t mtu_bytes;
  uint32_t entropy_values;           // of each queue pair
  uint32_t congestion_allowance_us;  // the least delay that the congestion window aims at
};

// driver::MrcLimits, for libraries that know no driver.
struct MrcQpLimits {
  uint16_t max_imm;
  uint8_t mpr;
  uint8_t exponential_retries;
};

}  // namespace hostnic

extern "C" {
// Returns 0, or ENODEV for a context that is not ours, and then leaves `device` as it is
int hostnic_mrc_device(ibv_context* context, hostnic::MrcDevice* device);
// Takes effect when the queue pair enters RTS. Returns 0, EINVAL for a queue pair that is not
// ours, EIO when hostnicd is gone.
int hostnic_mrc_set_limits(ibv_qp* qp, const hostnic::MrcQpLimits* limits);
}
