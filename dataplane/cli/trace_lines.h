// SPDX-License-Identifier: BSD-3-Clause
// Traced calls as lines of text, and counted by call. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "protocol/hostif/trace_ring.h"

namespace hostnic::cli {

// A record as it was copied out of the ring; text that a broken program wrote has no control
// characters, and no length that leads out of it.
struct TracedCall {
  uint64_t start_ns = 0, duration_ns = 0, count = 0;
  int32_t pid = 0, tid = 0;
  uint16_t depth = 0;
  TraceOutcome outcome{};
  std::string name, text;
};
TracedCall copy_of(const TraceRecord& record);
// Makes one of polls that were not told yet, or of a call that a thread was in when it ended.
TracedCall copy_of(const TracePolls& polls, int32_t pid, int32_t tid, uint64_t real_minus_steady);

// `12:00:00.123456 [4711] ibv_alloc_pd(context 0x55d0) = pd 0x55e0 <12.345 us>`, with its newline.
// Threads other than the first of their process are [PID/TID]; calls inside of others stand two
// columns further right. The time is local.
std::string trace_line(const TracedCall& call);

// Calls, errors and time by call, the longest time first.
class TraceSummary {
 public:
  void add(const TracedCall& call);
  std::string text() const;

 private:
  struct Row {
    uint64_t calls = 0, errors = 0, duration_ns = 0;
  };
  std::map<std::string, Row> rows_;
};

}  // namespace hostnic::cli
