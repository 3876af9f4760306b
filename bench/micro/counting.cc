// SPDX-License-Identifier: BSD-3-Clause
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#define HOSTNIC_CALLGRIND(request) CALLGRIND_##request
#else
#define HOSTNIC_CALLGRIND(request) static_cast<void>(0)
#endif

#include "bench/micro/report.h"

namespace hostnic::bench {

void begin_counting() { HOSTNIC_CALLGRIND(START_INSTRUMENTATION); }
// callgrind was told not to collect at start.
void resume_counting() { HOSTNIC_CALLGRIND(TOGGLE_COLLECT); }
void pause_counting() { HOSTNIC_CALLGRIND(TOGGLE_COLLECT); }
void end_counting() { HOSTNIC_CALLGRIND(STOP_INSTRUMENTATION); }

#if __has_include(<valgrind/callgrind.h>)
bool can_count() { return RUNNING_ON_VALGRIND != 0; }
#else
bool can_count() { return false; }
#endif
void dump_counts(const std::string& title) {
  static_cast<void>(title);
  HOSTNIC_CALLGRIND(DUMP_STATS_AT(title.c_str()));
}

Counting& counting() {
  static Counting all;
  return all;
}

}  // namespace hostnic::bench
