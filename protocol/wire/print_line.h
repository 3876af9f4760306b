// SPDX-License-Identifier: BSD-3-Clause
// Text of the printers of headers.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <string>

namespace hostnic::wire {

// Formats a line by snprintf and not by a formatting library: the printers are linked into every
// application that uses the verbs provider, and should bring nothing along. Lines of more than 255
// characters are cut; the printers' are shorter. It allocates; for any thread.
[[gnu::format(printf, 1, 2)]] inline std::string line(const char* format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

}  // namespace hostnic::wire
