// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/run.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <sstream>

#include "dataplane/cli/control_client.h"
#include "dataplane/cli/locate.h"
#include "dataplane/cli/preload_obstacle.h"
#include "dataplane/cli/process.h"

namespace hostnic::cli {
int run_on_hostnicd(const std::string& socket_path, const std::string& devices,
                    const std::vector<std::string>& command) {
  auto present = list_devices(socket_path);
  if (!present) return fail("run", present.error());
  std::string names;
  for (const DeviceInfo& device : *present)
    names += (names.empty() ? "" : ", ") + std::string(device.name);
  std::istringstream wanted(devices);
  for (std::string name; std::getline(wanted, name, ',');) {
    const bool found = std::any_of(present->begin(), present->end(),
                                   [&](const DeviceInfo& device) { return name == device.name; });
    if (!found) return fail("run", fmt::format("no device \"{}\" (there are: {})", name, names));
  }
  auto preload = preload_value(getenv("LD_PRELOAD"), command);
  if (!preload) return fail("run", preload.error());
  warn_if_not_preloaded("run", command);
  setenv("LD_PRELOAD", preload->c_str(), 1);
  setenv("ASAN_OPTIONS", asan_options_value(getenv("ASAN_OPTIONS")).c_str(), 1);
  setenv("HOSTNIC_SOCKET", socket_path.c_str(), 1);
  if (devices.empty())
    unsetenv("HOSTNIC_DEVICE");
  else
    setenv("HOSTNIC_DEVICE", devices.c_str(), 1);
  return exec_command(command);
}

}  // namespace hostnic::cli
