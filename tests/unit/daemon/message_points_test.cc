// SPDX-License-Identifier: BSD-3-Clause
// DPDK's trace points, from moments to events in a stream, as `hostnic report` reads them.
#include "dataplane/daemon/observe/message_points.h"

#include <gtest/gtest.h>
#include <rte_trace.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "dataplane/cli/ctf_reader.h"
#include "tests/unit/daemon/eal.h"

namespace hostnic {
namespace {

std::string metadata_text() {
  char* text = nullptr;
  size_t bytes = 0;
  FILE* const file = open_memstream(&text, &bytes);
  rte_trace_metadata_dump(file);
  fclose(file);
  std::string all(text, bytes);
  free(text);
  return all;
}

class Points : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(eal_runs());
    enable_message_points(true);
  }
  void TearDown() override { enable_message_points(false); }

  // Every event of the stream.
  static std::vector<cli::CtfEvent> events_of(const cli::CtfMetadata& metadata,
                                              const MessagePoints& points) {
    std::vector<cli::CtfEvent> events;
    cli::CtfStream stream(metadata, points.stream());
    for (;;) {
      const auto event = stream.next();
      EXPECT_TRUE(event) << event.error();
      if (!event || !*event) return events;
      events.push_back(**event);
    }
  }
};

TEST_F(Points, EventsHaveWhatMomentsSay) {
  MessagePoints points;
  ASSERT_EQ(points.make_memory(64 * 1024, 3), 0);
  points.begin();
  const MessageEvent post{.kind = MessageEventKind::kPosted,
                          .op = SendOp::kRead,
                          .signalled = 1,
                          .qpn = 0x123,
                          .ticks = 77,
                          .wr_id = 0x1122334455667788,
                          .number = 5,
                          .sequence = 6,
                          .first_psn = 7,
                          .psns = 8,
                          .first_answer = 9,
                          .answers = 10,
                          .length_bytes = 11};
  points.take({.kind = MomentKind::kPosted,
               .ticks = 1000,
               .nic = 1,
               .qpn = 2,
               .event = &post,
               .client = 3,
               .type = QpType::kUc});
  points.take({.kind = MomentKind::kPlacedAlone, .ticks = 1001, .nic = 1, .qpn = 2, .until = 4});
  points.take({.kind = MomentKind::kReported, .ticks = 1002, .until = 4, .answered = 5});
  points.end();
  const std::string text = metadata_text();
  const auto metadata = cli::CtfMetadata::parse(text);
  ASSERT_TRUE(metadata) << metadata.error();
  const auto events = events_of(*metadata, points);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(points.recorded(), 3u);
  EXPECT_EQ(points.missed(), 0u);
  const auto expect = [&](size_t event, const char* name, uint64_t value) {
    EXPECT_EQ(events[event].number(name), value) << name;
  };
  EXPECT_EQ(events[0].kind->name, "hostnic.posted");
  expect(0, "at", 1000);
  expect(0, "nic", 1);
  expect(0, "qpn", 2);
  expect(0, "client", 3);
  expect(0, "sequence", 6);
  expect(0, "number", 5);
  expect(0, "wr_id", 0x1122334455667788);
  expect(0, "first_psn", 7);
  expect(0, "psns", 8);
  expect(0, "first_answer", 9);
  expect(0, "answers", 10);
  expect(0, "length_bytes", 11);
  expect(0, "op", static_cast<uint64_t>(SendOp::kRead));
  expect(0, "type", static_cast<uint64_t>(QpType::kUc));
  expect(0, "signalled", 1);
  EXPECT_EQ(events[1].kind->name, "hostnic.placed");
  expect(1, "until", 4);
  expect(1, "alone", 1);
  EXPECT_EQ(events[2].kind->name, "hostnic.reported");
  expect(2, "answered", 5);
}

// What is full keeps what it has, and all that comes then is counted.
TEST_F(Points, WhatFindsNoRoomIsCounted) {
  MessagePoints points;
  ASSERT_EQ(points.make_memory(1000, 1), 0);
  points.begin();
  constexpr uint32_t kMoments = 100;
  for (uint32_t i = 0; i < kMoments; ++i)
    points.take({.kind = MomentKind::kSent, .ticks = i, .until = i});
  points.end();
  EXPECT_GT(points.missed(), 0u);
  EXPECT_EQ(points.recorded() + points.missed(), kMoments);
  const std::string text = metadata_text();
  const auto metadata = cli::CtfMetadata::parse(text);
  ASSERT_TRUE(metadata);
  const auto events = events_of(*metadata, points);
  ASSERT_EQ(events.size(), points.recorded());
  for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i].number("until"), i);
}

}  // namespace
}  // namespace hostnic
