// SPDX-License-Identifier: BSD-3-Clause
// hostnicd's log: one line an event, on stderr. Any thread but a NIC's lcore.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "dataplane/daemon/observe/error_book.h"

namespace hostnic {

template <typename... Args>
void log_line(fmt::format_string<Args...> format, Args&&... args) {
  // The line is one write, so that lines of several threads do not mix.
  const std::string line = "hostnicd: " + fmt::format(format, std::forward<Args>(args)...) + "\n";
  fputs(line.c_str(), stderr);
}

// Does the same for what has gone wrong: it is noted in the book of errors, and lines of one kind
// get ever rarer in the log.
template <typename... Args>
void log_problem(fmt::format_string<Args...> format, Args&&... args) {
  const std::string line = fmt::format(format, std::forward<Args>(args)...);
  const uint64_t count = note_error(line);
  if (!worth_a_line(count)) return;
  log_line("{}{}", line, count > 1 ? fmt::format(" ({} times)", count) : "");
}

}  // namespace hostnic
