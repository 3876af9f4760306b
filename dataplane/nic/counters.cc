// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/counters.h"

namespace hostnic {
namespace {

constexpr const char* kNames[] = {
#define HOSTNIC_COUNTER_NAME(name, help) #name,
    HOSTNIC_COUNTERS(HOSTNIC_COUNTER_NAME)
#undef HOSTNIC_COUNTER_NAME
};

constexpr const char* kHelps[] = {
#define HOSTNIC_COUNTER_HELP(name, help) help,
    HOSTNIC_COUNTERS(HOSTNIC_COUNTER_HELP)
#undef HOSTNIC_COUNTER_HELP
};

}  // namespace

const char* counter_name(Counter counter) { return kNames[static_cast<size_t>(counter)]; }
const char* counter_help(Counter counter) { return kHelps[static_cast<size_t>(counter)]; }

}  // namespace hostnic
