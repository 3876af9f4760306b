// SPDX-License-Identifier: BSD-3-Clause
// Events about QPs, CQs and the device, on the way from the driver to ibv_get_async_event.
#pragma once

#include "verbs-shim/abi/objects.h"

namespace hostnic::abi {

// Starts queueing the driver's events for the program.
void watch_async_events(ContextObject& context);
// Called by destroy functions after claim(): drops what is queued about the object.
void forget_async_events(ContextObject& context, uint64_t object_id);

}  // namespace hostnic::abi
