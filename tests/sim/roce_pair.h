// SPDX-License-Identifier: BSD-3-Clause
// What the tests of the standard's RC set up their pairs with, and ask of them.
#pragma once

#include <algorithm>

#include "tests/sim/pair.h"

namespace hostnic::sim {

inline WorldSettings roce() {
  WorldSettings settings;
  settings.transport = Transport::kRoce;
  return settings;
}
inline QpSettings from_psn(uint32_t psn) {
  QpSettings qp;
  qp.psn = psn;
  return qp;
}
inline bool raised(const Endpoint& end, driver::AsyncEvent event) {
  return std::ranges::any_of(end.host->events, [&](const Event& e) { return e.event == event; });
}
inline uint64_t timeouts(Pair& pair) { return pair.near->host->driver().counters().timeouts; }

}  // namespace hostnic::sim
