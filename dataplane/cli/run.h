// SPDX-License-Identifier: BSD-3-Clause
// `hostnic run`: a command on a running hostnicd.
#pragma once

#include <string>
#include <vector>

namespace hostnic::cli {

// Runs a command on the devices in `devices`: comma-separated names; empty: all. Where it need not
// move `required_bytes` by RDMA ("" is none), this replaces the process, and returns only if it
// can't. Returns an exit code.
int run_on_hostnicd(const std::string& socket_path, const std::string& devices,
                    const std::string& required_bytes, const std::vector<std::string>& command);

// What `hostnic run --how` does: says in one line which way a command gets its devices.
int print_way_to_devices(const std::vector<std::string>& command);

// What `hostnic devices` does.
int print_devices(const std::string& socket_path);

// What `hostnic libdir` does.
int print_libdir();

}  // namespace hostnic::cli
