// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/base/log.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "verbs-shim/base/cancellation.h"

namespace hostnic {
namespace {

constexpr size_t kMaxLineBytes = 1024;

void write_line(const char* severity, const char* format, va_list arguments) {
  const int saved_errno = errno;
  const CancellationOff cancellation_off;
  char line[kMaxLineBytes];
  int used = snprintf(line, sizeof line, "hostnic[%d] %s", getpid(), severity);
  int text = vsnprintf(line + used, sizeof line - used, format, arguments);
  size_t length = std::min<size_t>(used + std::max(text, 0), sizeof line - 1);
  line[length++] = '\n';
  // A closed or full stderr is no reason to disturb the program.
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, line, length);
  errno = saved_errno;
}

}  // namespace

namespace log_detail {

std::atomic<int> level{kUnread};

int read_level() {
  struct Name {
    const char* text;
    LogLevel level;
  };
  constexpr Name kNames[] = {{"off", LogLevel::kOff},
                             {"warn", LogLevel::kWarn},
                             {"info", LogLevel::kInfo},
                             {"debug", LogLevel::kDebug}};
  LogLevel found = LogLevel::kWarn;
  const char* wanted = getenv("HOSTNIC_LOG");
  bool known = wanted == nullptr || *wanted == '\0';
  for (const Name& name : kNames) {
    if (wanted != nullptr && strcmp(wanted, name.text) == 0) {
      found = name.level;
      known = true;
    }
  }
  int unread = kUnread;
  bool first = level.compare_exchange_strong(unread, static_cast<int>(found));
  if (first && !known)
    log_warn("HOSTNIC_LOG=%s is not known: use debug, info, warn or off", wanted);
  return static_cast<int>(found);
}

}  // namespace log_detail

void log_debug(const char* format, ...) {
  if (!log_enabled(LogLevel::kDebug)) return;
  va_list arguments;
  va_start(arguments, format);
  write_line("debug: ", format, arguments);
  va_end(arguments);
}

void log_info(const char* format, ...) {
  if (!log_enabled(LogLevel::kInfo)) return;
  va_list arguments;
  va_start(arguments, format);
  write_line("info: ", format, arguments);
  va_end(arguments);
}

void log_warn(const char* format, ...) {
  if (!log_enabled(LogLevel::kWarn)) return;
  va_list arguments;
  va_start(arguments, format);
  write_line("", format, arguments);
  va_end(arguments);
}

}  // namespace hostnic
