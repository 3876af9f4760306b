// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/driver/message_log.h"

#include <rte_cycles.h>

namespace hostnic::driver {

uint64_t MessageLog::ticks() { return rte_rdtsc(); }

void MessageLog::add(MessageEvent event, uint32_t session) {
  const std::lock_guard lock(mutex_);
  event.session = session;
  event.sequence = sequence_++;
  map_.events.enqueue_bulk(&event, 1);
}

}  // namespace hostnic::driver
