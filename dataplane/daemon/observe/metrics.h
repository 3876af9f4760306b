// SPDX-License-Identifier: BSD-3-Clause
// All that hostnicd measures, as metrics: of NICs, queue pairs, clients and lcores. The names are
// API (docs/operate.md).
#pragma once

#include <string>

#include "dataplane/daemon/control/command.h"
#include "dataplane/daemon/observe/metrics_text.h"

namespace hostnic {

class Daemon;

// The most queue pairs that are listed one by one; of the others there is only the number.
inline constexpr size_t kMaxQpsInMetrics = 1000;

// Makes the text of all metrics; it has those queue pairs and clients that the asker sees. The
// control thread calls it: lcores are asked one after the other, for 64 queue pairs at a time.
std::string metrics_of(Daemon& daemon, const Asker& asker, MetricsFormat format);

}  // namespace hostnic
