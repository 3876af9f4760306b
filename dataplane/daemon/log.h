// SPDX-License-Identifier: BSD-3-Clause
// hostnicd's log: one line an event, on stderr. Any thread but a NIC's lcore.
#pragma once

#include <fmt/format.h>

#include <cstdio>

namespace hostnic {

template <typename... Args>
void log_line(fmt::format_string<Args...> format, Args&&... args) {
  // The line is one write, so that lines of several threads do not mix.
  const std::string line = "hostnicd: " + fmt::format(format, std::forward<Args>(args)...) + "\n";
  fputs(line.c_str(), stderr);
}

}  // namespace hostnic
