// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/counters.h"

namespace hostnic {
namespace {

constexpr const char* kNames[] = {
#define HOSTNIC_COUNTER_NAME(name, help) #name,
    HOSTNIC_COUNTERS(HOSTNIC_COUNTER_NAME)
#undef HOSTNIC_COUNTER_NAME
};

}  // namespace

const char* counter_name(Counter counter) { return kNames[static_cast<size_t>(counter)]; }

}  // namespace hostnic
