// SPDX-License-Identifier: BSD-3-Clause
// What the devices say about receives that were missing and CQs that were full.
#pragma once

#include <cstdint>
#include <string>

#include "tests/apps/verify/device.h"

namespace hostnic::credit {

struct RnrCounters {
  uint64_t sum = 0;
  unsigned counters = 0;  // how many the device has; with none, the sum says nothing
};

// Of port 1's counters in sysfs, those about RNR NAKs. They are all programs', since the device is
// up: what this program caused is a difference.
RnrCounters rnr_counters(const std::string& device);

// Takes the asynchronous events that have come. CQ_ERR is an overrun; other fatal ones throw.
unsigned take_cq_overruns(ibv_context* context);

}  // namespace hostnic::credit
