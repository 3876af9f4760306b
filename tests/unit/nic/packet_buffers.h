// SPDX-License-Identifier: BSD-3-Clause
// DPDK for the tests of unit-nic that need packet buffers: started once, by whichever is first.
#pragma once

#include "dataplane/simulation/small_eal.h"

namespace hostnic {

// False: it did not start, and stderr says why.
inline bool packet_buffers_start() {
  static const SmallEal eal("unit-nic");
  return static_cast<bool>(eal);
}

}  // namespace hostnic
