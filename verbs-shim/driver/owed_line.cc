// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/base/explanation.h"
#include "verbs-shim/driver/driver.h"

namespace hostnic::driver {

void say(const OwedLine& line, const std::string& cause) {
  if (cause.empty() && line.fallback.empty()) return;
  explain("%s: %s", line.before.c_str(), cause.empty() ? line.fallback.c_str() : cause.c_str());
}

}  // namespace hostnic::driver
