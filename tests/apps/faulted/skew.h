// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

namespace hostnic::faulted {

// Ten WRITEs on each of two devices; says of each completion when it is delivered. `how`: poll,
// poll-ex, events, events-ex (of extended queues), events-one (one WRITE each, posted to an armed
// queue), or left: most are never polled.
int run_skew(std::string_view how, const char* first, const char* second);

}  // namespace hostnic::faulted
