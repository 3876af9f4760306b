// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dataplane/cli/trace_lines.h"

namespace hostnic::cli {
namespace {

TracedCall call_of(const char* name, const char* text, uint64_t duration_ns = 12'345) {
  TracedCall call;
  call.start_ns = 3'600'000'001'500;
  call.duration_ns = duration_ns;
  call.count = 1;
  call.pid = call.tid = 7;
  call.name = name;
  call.text = text;
  return call;
}

class TraceLine : public testing::Test {
 protected:
  TraceLine() {
    setenv("TZ", "UTC", 1);
    tzset();
  }
};

TEST_F(TraceLine, HasTimeProcessCallAndDuration) {
  EXPECT_EQ(trace_line(call_of("ibv_alloc_pd", "(context 0x1) = pd 0x2")),
            "01:00:00.000001 [7] ibv_alloc_pd(context 0x1) = pd 0x2 <12.345 us>\n");
}

TEST_F(TraceLine, NamesThreadsDepthAndNumber) {
  TracedCall call = call_of("ibv_poll_cq", "(cq 0x1, 16) = 0", 1'500'000'000);
  call.tid = 8;
  call.depth = 1;
  call.count = 18231;
  EXPECT_EQ(trace_line(call),
            "01:00:00.000001 [7/8]   ibv_poll_cq(cq 0x1, 16) = 0 x 18231 <1.500 s>\n");
}

TEST_F(TraceLine, SaysThatACallHasNotReturned) {
  TracedCall call = call_of("ibv_get_cq_event", "(channel 0x1)");
  call.outcome = TraceOutcome::kUnfinished;
  EXPECT_EQ(trace_line(call),
            "01:00:00.000001 [7] ibv_get_cq_event(channel 0x1) <unfinished, 12.345 us>\n");
}

TEST_F(TraceLine, ABrokenRecordIsNoDanger) {
  static TraceRecord record;
  memset(record.name, 'n', sizeof(record.name));  // no end
  memset(record.text, '\n', sizeof(record.text));
  record.text_bytes = 1u << 31;
  record.depth = 60000;
  const TracedCall call = copy_of(record);
  EXPECT_EQ(call.name.size(), sizeof(record.name));
  EXPECT_EQ(call.text, std::string(sizeof(record.text), '?'));
  const std::string line = trace_line(call);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
}

TEST(TraceSummary, CountsByCallTheLongestFirst) {
  TraceSummary summary;
  summary.add(call_of("ibv_reg_mr", "", 1000));
  TracedCall failed = call_of("ibv_reg_mr", "", 3000);
  failed.outcome = TraceOutcome::kFailure;
  summary.add(failed);
  TracedCall polls = call_of("ibv_poll_cq", "", 40'000);
  polls.count = 100;
  summary.add(polls);
  EXPECT_EQ(summary.text(),
            "        time     per call      calls   errors  call\n"
            "   40.000 us       400 ns        100           ibv_poll_cq\n"
            "    4.000 us     2.000 us          2        1  ibv_reg_mr\n"
            "   44.000 us       431 ns        102        1  all\n");
}

}  // namespace
}  // namespace hostnic::cli
