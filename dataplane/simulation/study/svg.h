// SPDX-License-Identifier: BSD-3-Clause
// The results of a study as a picture: goodput and completion times over what was varied, a line
// for each policy. It follows the reader's choice of light or dark; lines differ in colour, dashes
// and marks.
#pragma once

#include <string>
#include <vector>

#include "dataplane/simulation/study/cell.h"
#include "protocol/expected.h"

namespace hostnic::study {

inline constexpr size_t kMostFacets = 12;

// Along the x axis goes what has most values; each combination of the others is a row of panels. An
// error is one line: too many rows, or cells of several studies.
Expected<std::string, std::string> svg_of(const std::vector<Cell>& cells,
                                          const std::vector<Result>& results);

}  // namespace hostnic::study
