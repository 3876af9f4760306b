// SPDX-License-Identifier: BSD-3-Clause
// Where the parts of hostnic are: beside this program in a build directory, else where `meson
// install` put them.
#pragma once

#include <string>
#include <vector>

#include "protocol/expected.h"

namespace hostnic::cli {

// The directory of this program.
std::string own_directory();
// PATH for commands of a lab: they may say `hostnic run` where hostnic is not installed.
std::string path_with_us(const char* current);
// These find the other parts; an error is one line.
Expected<std::string, std::string> find_hostnicd();
Expected<std::string, std::string> find_shim();
Expected<std::string, std::string> find_calls_library();
// The stand-in for GPUs' memory, beside which lie the names that programs load it by.
Expected<std::string, std::string> find_gpu_library();
// The directory of our libibverbs.so.1 and librdmacm.so.1.
Expected<std::string, std::string> find_libdir();
// The program that `hostnic simulate` becomes.
Expected<std::string, std::string> find_simulate();

// LD_PRELOAD for a command: what `current` preloads already, then the shim. Sanitizers' runtimes
// must come first: those that the command needs, and, where this library is built with one,
// HOSTNIC_PRELOAD_EXTRA, set at build time or in the environment.
Expected<std::string, std::string> preload_value(const char* current,
                                                 const std::vector<std::string>& command);
// Joins the parts of LD_PRELOAD in that order.
std::string join_preloads(const std::vector<std::string>& first, const std::string& current,
                          const std::string& shim);
// LD_PRELOAD with a library in front of all that `current` names but sanitizers' runtimes.
std::string preload_in_front(const char* current, const std::string& library);
// ASAN_OPTIONS without the check that a runtime is the first library: of programs that the command
// starts nobody knows in time whether they need one, and behind the shim it works as well.
std::string asan_options_value(const char* current);

}  // namespace hostnic::cli
