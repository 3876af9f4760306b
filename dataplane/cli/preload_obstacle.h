// SPDX-License-Identifier: BSD-3-Clause
// Commands that the shim does not get into, though they are started with it in LD_PRELOAD.
#pragma once

#include <sys/stat.h>

#include <string>
#include <vector>

namespace hostnic::cli {

// Says what stands in the way of preloading, as in "./prog is statically linked"; empty: nothing.
// For a script its interpreter counts, and behind `#!/usr/bin/env` the program that env starts.
// Programs that the command starts itself are not known.
std::string preload_obstacle(const std::vector<std::string>& command, const char* path);

// Whether executing a file changes the user or group: the dynamic linker then ignores LD_PRELOAD.
bool changes_identity(const struct stat& file, uid_t user, gid_t group);

// Warns on stderr if something stands in the way of preloading. The command runs all the same.
void warn_if_not_preloaded(const std::string& subcommand, const std::vector<std::string>& command);

// Says in one line which way a command gets its devices under `hostnic run`, which is not to start
// it: by which preloaded library, or why by none; `path` is PATH.
std::string way_to_devices(const std::vector<std::string>& command, const char* path);

}  // namespace hostnic::cli
