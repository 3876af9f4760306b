// SPDX-License-Identifier: BSD-3-Clause
// hostnicd's command line: `hostnicd [EAL arguments] -- [our options]`. Without `--` all arguments
// are ours and EAL gets some that suit an ordinary user without hugepages.
#pragma once

#include <string>
#include <vector>

#include "dataplane/daemon/plan.h"
#include "protocol/expected.h"

namespace hostnic {

// The reason why there is no plan: --help and --version (exit_code 0, text for stdout), or an error
// (one line for stderr).
struct OptionsExit {
  int exit_code = 0;
  std::string text;
};

// Reads options and the configuration file, and checks all that can be checked before EAL starts:
// interfaces, their MTU, privileges. `arguments` come without the program's name.
Expected<DaemonPlan, OptionsExit> plan_from_arguments(const std::vector<std::string>& arguments);

// The rule that a value of --loss stands for: "1%" or "0". An error is one line.
Expected<impair::Spec, std::string> loss_spec(const std::string& text);

}  // namespace hostnic
