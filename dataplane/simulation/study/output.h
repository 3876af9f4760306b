// SPDX-License-Identifier: BSD-3-Clause
// The results of a study as CSV, and as a table for people. How they are drawn: svg.h.
#pragma once

#include <string>
#include <vector>

#include "dataplane/simulation/study/cell.h"

namespace hostnic::study {

// All columns, a line for each cell. Names end in their unit where they have one.
std::string csv_of(const std::vector<Cell>& cells, const std::vector<Result>& results);

// What all cells have in common, then a line for each.
std::string table_of(const std::vector<Cell>& cells, const std::vector<Result>& results);

// What all cells have in common, in a line.
std::string common_of(const std::vector<Cell>& cells);

double goodput_bits_per_second(const Result& result);
// The 99th percentile is told of at least so many transfers.
inline constexpr uint64_t kLeastForP99 = 100;

}  // namespace hostnic::study
