// SPDX-License-Identifier: BSD-3-Clause
// hostnicd's part of DPDK's telemetry socket: /hostnic/nics and /hostnic/counters,hnicK.
#pragma once

namespace hostnic {

class Daemon;

// Called once, after EAL started. `daemon` must stay until unregister_telemetry().
void register_telemetry(Daemon& daemon);
// From here on requests answer nothing. This waits for one that is being answered.
void unregister_telemetry();

}  // namespace hostnic
