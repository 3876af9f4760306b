// SPDX-License-Identifier: BSD-3-Clause
// The other programs of the lab that this process belongs to.
#pragma once

#include <vector>

#include "verbs-shim/hooks/connect_patience.h"

namespace hostnic::hooks {

// Finds them in /proc, without those that can't be read or are older than `max_age_ms`.
std::vector<LabProgram> other_lab_programs(uint64_t max_age_ms);

}  // namespace hostnic::hooks
