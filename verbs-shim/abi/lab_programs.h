// SPDX-License-Identifier: BSD-3-Clause
// The other programs of the lab that this process belongs to.
#pragma once

#include <vector>

#include "verbs-shim/abi/connect_patience.h"

namespace hostnic::abi {

// From /proc, without what can't be read and without those that are older than `max_age_ms`.
std::vector<LabProgram> other_lab_programs(uint64_t max_age_ms);

}  // namespace hostnic::abi
