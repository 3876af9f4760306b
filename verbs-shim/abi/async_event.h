// SPDX-License-Identifier: BSD-3-Clause
// Events about QPs, CQs and the device, on the way from the driver to ibv_get_async_event.
#pragma once

#include <pthread.h>

#include <initializer_list>

#include "verbs-shim/abi/objects.h"

namespace hostnic::abi {

// Starts queueing the driver's events for the program.
void watch_async_events(ContextObject& context);
// Called by destroy functions after claim(): drops what is queued about the object.
void forget_async_events(ContextObject& context, uint64_t object_id);

// Events of an object that the program has taken, and how many of them it has acknowledged, which
// the object's mutex guards.
struct EventTally {
  const char* acknowledged_by = "";  // the verb
  uint32_t taken = 0;
  const uint32_t* acknowledged = nullptr;
};
// Waits until all are acknowledged, as each destroy verb does. After a second it says what it waits
// for: the program may be one that has forgotten to.
void wait_until_acknowledged(const char* call, pthread_mutex_t& mutex, pthread_cond_t& cond,
                             std::initializer_list<EventTally> tallies);

}  // namespace hostnic::abi
