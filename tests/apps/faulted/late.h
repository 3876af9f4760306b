// SPDX-License-Identifier: BSD-3-Clause
// hostnic-faulted late [DEVICE]: what programs see of requests that the device gets late, by a rule
// such as `post delay 300ms`.
#pragma once

namespace hostnic::faulted {

int run_late(const char* device);

}  // namespace hostnic::faulted
