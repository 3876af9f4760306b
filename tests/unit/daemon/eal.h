// SPDX-License-Identifier: BSD-3-Clause
// EAL, which a process can have once, for those of these tests that need it.
#pragma once

#include "dataplane/nic/packet/external_payload.h"
#include "dataplane/nic/packet/packet.h"
#include "dataplane/simulation/small_eal.h"

namespace hostnic {

inline bool eal_runs() {
  static const SmallEal eal("unit-daemon");
  return static_cast<bool>(eal) && register_mbuf_flags();
}

}  // namespace hostnic
