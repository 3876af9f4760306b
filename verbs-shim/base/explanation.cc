// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/base/explanation.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "verbs-shim/base/log.h"

namespace hostnic {
namespace {

constexpr int kMostUnasked = 16;
std::atomic<int> said{0};

}  // namespace

bool somebody_reads() {
  static const bool reads = [] {
    const int error = errno;
    const bool is_terminal = isatty(STDERR_FILENO) == 1;
    errno = error;
    return is_terminal || getenv("HOSTNIC_LAB") != nullptr;
  }();
  return reads;
}

bool explanations_wanted() {
  if (log_enabled(LogLevel::kInfo)) return true;
  return log_enabled(LogLevel::kWarn) && somebody_reads() &&
         said.load(std::memory_order_relaxed) < kMostUnasked;
}

void explain(const char* format, ...) {
  if (!explanations_wanted()) return;
  const int saved_errno = errno;
  char line[960];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (log_enabled(LogLevel::kInfo)) {
    log_info("%s", line);
  } else {
    const int count = said.fetch_add(1, std::memory_order_relaxed) + 1;
    log_warn("%s%s", line,
             count == kMostUnasked ? " (HOSTNIC_LOG=info explains what fails from here on)" : "");
  }
  errno = saved_errno;
}

}  // namespace hostnic
