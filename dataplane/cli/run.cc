// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/run.h"

#include <errno.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <sstream>

#include "dataplane/cli/control_client.h"
#include "dataplane/cli/locate.h"
#include "dataplane/cli/preload_obstacle.h"
#include "dataplane/cli/process.h"
#include "dataplane/cli/rdma_use.h"
#include "dataplane/cli/shared_board.h"

namespace hostnic::cli {
namespace {

void no_other_child(pid_t, int) {}

// Runs the command and looks at its end how much it has moved. A lab around it hears of that, too.
int run_counted(const std::string& required_bytes, const std::vector<std::string>& command) {
  SharedBoard<UseBoard> board;
  if (auto made = board.make("use", false); !made) return fail("run", made.error());
  const char* around = getenv(kUseBoardVariable);
  block_signals();
  ChildOptions child;
  child.environment = {{kUseBoardVariable, board.path()}};
  const pid_t pid = start_child(command, child);
  if (pid < 0) return fail("run", fmt::format("fork: {}", strerror(errno)));
  const int code = exit_code_of(wait_and_forward(pid, no_other_child));
  const RdmaUse use = use_of(*board);
  if (around != nullptr) add_use_to(around, use);
  return judge_use("run", required_bytes, use, code);
}

}  // namespace

int print_way_to_devices(const std::vector<std::string>& command) {
  fmt::print("{}\n", way_to_devices(command, getenv("PATH")));
  return 0;
}

int print_devices(const std::string& socket_path) {
  auto devices = list_devices(socket_path);
  if (!devices) return fail("devices", devices.error());
  for (const DeviceInfo& device : *devices)
    fmt::print("{} {}/{} mtu {} {} {}\n", device.name, to_string(gid_in(device.address)),
               device.prefix_length, device.mtu_bytes, device.link_up ? "up" : "down", device.port);
  return 0;
}

int print_libdir() {
  auto directory = find_libdir();
  if (!directory) return fail("libdir", directory.error());
  fmt::print("{}\n", *directory);
  return 0;
}

int run_on_hostnicd(const std::string& socket_path, const std::string& devices,
                    const std::string& required_bytes, const std::vector<std::string>& command) {
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
  return required_bytes.empty() ? exec_command(command) : run_counted(required_bytes, command);
}

}  // namespace hostnic::cli
