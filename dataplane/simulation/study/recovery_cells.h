// SPDX-License-Identifier: BSD-3-Clause
// The recovery study of docs/recovery.md as cells.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "dataplane/simulation/study/cell.h"

namespace hostnic::study {

// A way to recover: a policy of the native transport, or the standard's RC.
struct Recovery {
  const char* name;
  wire::Policy policy;
  bool roce = false;
};
std::span<const Recovery> all_recoveries();
const char* recovery_name(const Cell& cell);

// The cells of the whole study, and the few of it that the golden snapshot consists of.
std::vector<Cell> study_cells();
std::vector<Cell> golden_cells();

}  // namespace hostnic::study
