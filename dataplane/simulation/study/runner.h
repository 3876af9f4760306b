// SPDX-License-Identifier: BSD-3-Clause
// Runs the cells of a study in several processes at a time, each with an EAL of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dataplane/simulation/study/cell.h"
#include "protocol/expected.h"

namespace hostnic::study {

// Results are in the order of the cells, whichever process ran them. `progress` hears now and then
// how many are done. EAL must not have been started in this process. An error is one line; what
// went wrong in a cell stands on stderr before.
Expected<std::vector<Result>, std::string> run_all(
    const std::vector<Cell>& cells, uint32_t jobs,
    const std::function<void(size_t done)>& progress);

}  // namespace hostnic::study
