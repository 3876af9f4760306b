// SPDX-License-Identifier: BSD-3-Clause
// One small logger for the preloaded library. It lives inside other people's programs: it writes to
// stderr only, one write(2) per line, allocates nothing, and says nothing unless something is wrong
// or $HOSTNIC_LOG asks for more.
//
//   HOSTNIC_LOG=debug|info|warn|off    (warn if unset)
#pragma once

#include <atomic>

namespace hostnic {

enum class LogLevel : int { kOff, kWarn, kInfo, kDebug };

namespace log_detail {
inline constexpr int kUnread = -1;
extern std::atomic<int> level;
int read_level();
}  // namespace log_detail

// May be called by any thread. This is one relaxed load once the level was read; use it to guard
// arguments that are costly.
inline bool log_enabled(LogLevel wanted) {
  int level = log_detail::level.load(std::memory_order_relaxed);
  if (level == log_detail::kUnread) level = log_detail::read_level();
  return level >= static_cast<int>(wanted);
}

// These take printf formats, without a newline. They may be called by any thread, also with locks
// taken; errno is preserved. Lines beyond 1 KiB are cut.
[[gnu::format(printf, 1, 2)]] void log_debug(const char* format, ...);
[[gnu::format(printf, 1, 2)]] void log_info(const char* format, ...);
[[gnu::format(printf, 1, 2)]] void log_warn(const char* format, ...);

}  // namespace hostnic
