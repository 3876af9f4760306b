// Where the parts of hostnic are: beside this program in a build directory, else where `meson
// install` put them.
#pragma once

#include <string>

#include "protocol/expected.h"

namespace hostnic::cli {

// Where this program lies.
std::string own_directory();
// Error: one line.
Expected<std::string, std::string> find_hostnicd();
Expected<std::string, std::string> find_shim();

// LD_PRELOAD with the shim in front of what `current` preloads already. Under AddressSanitizer its
// runtime must come first: HOSTNIC_PRELOAD_EXTRA, set at build time or in the environment.
Expected<std::string, std::string> preload_value(const char* current);

}  // namespace hostnic::cli
