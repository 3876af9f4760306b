// SPDX-License-Identifier: BSD-3-Clause
// hostnic-faulted own-events [DEVICE]: what programs see of a device's own events that are late, by
// a rule such as `event QP_LAST_WQE_REACHED delay 2s`. Three queue pairs on a shared
// receive queue fail one after the other; the third is destroyed before its event is taken.
#pragma once

namespace hostnic::faulted {

int run_own_events(const char* device);

}  // namespace hostnic::faulted
