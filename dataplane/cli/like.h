// SPDX-License-Identifier: BSD-3-Clause
// `hostnic like`: the personalities that `--like` knows, and what one of them says.
#pragma once

#include <string>
#include <vector>

namespace hostnic::cli {

// Lists them, or shows one: by name, or of a file, which is checked. Returns the exit code.
int run_like(const std::vector<std::string>& words);

}  // namespace hostnic::cli
