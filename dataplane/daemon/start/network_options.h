// SPDX-License-Identifier: BSD-3-Clause
// hostnicd's options about the network that its NICs are on: the switch between them, and by how
// many ways their packets go. Called once, while hostnicd starts.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "dataplane/daemon/plan.h"
#include "protocol/expected.h"

namespace hostnic {

struct NetworkOptions {
  std::string network_switch;  // empty: the file's
  uint32_t paths = 0;          // of each queue pair; 0: what its NIC says
  uint32_t planes = 0;         // likewise
  bool mrc = false;            // all NICs speak MRC
};

void declare_network(CLI::App& app, NetworkOptions& options);

// Gives every NIC of the plan what the options say. Returns what is wrong with them, or with what a
// NIC's own keys say beside them.
Expected<void, std::string> apply_network(const NetworkOptions& options, DaemonPlan& plan);

}  // namespace hostnic
