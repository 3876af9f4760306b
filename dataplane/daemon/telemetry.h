// SPDX-License-Identifier: BSD-3-Clause
// hostnicd's part of DPDK's telemetry socket: /hostnic/nics and /hostnic/counters,hnicK.
#pragma once

namespace hostnic {

class Daemon;

// Once, after EAL started. `daemon` outlives EAL's telemetry thread's interest: unregister first.
void register_telemetry(Daemon& daemon);
// Requests answer nothing from here on. Waits for one that is being answered.
void unregister_telemetry();

}  // namespace hostnic
