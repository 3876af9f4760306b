// SPDX-License-Identifier: BSD-3-Clause
// Traced messages: each has all its steps, in their order, whatever becomes of its packets; and
// nothing is said while nobody traces.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dataplane/cli/message_times.h"
#include "dataplane/nic/qp/message_tap.h"
#include "protocol/hostif/send_op_text.h"
#include "tests/sim/pair.h"
#include "verbs-shim/driver/message_log.h"

namespace hostnic::sim {
namespace {

using cli::MessageTimes;
using cli::Step;
using cli::TracedMessage;
using cli::TracedMoment;

// As a trace's file has it.
class Recorder final : public MessageSink {
 public:
  void take(const MessageMoment& moment) override {
    TracedMoment& traced = moments.emplace_back();
    traced = {.kind = kind_of(moment.kind),
              .at = moment.ticks,
              .nic = moment.nic,
              .qpn = moment.qpn,
              .until = moment.until,
              .answered = moment.answered};
    if (moment.event == nullptr) return;
    const MessageEvent& event = *moment.event;
    traced.client = moment.client;
    traced.sequence = event.sequence;
    traced.number = event.number;
    traced.wr_id = event.wr_id;
    traced.status = event.status;
    traced.first_psn = event.first_psn;
    traced.psns = event.psns;
    traced.first_answer = event.first_answer;
    traced.answers = event.answers;
    traced.length_bytes = event.length_bytes;
    traced.op = event.op;
    traced.type = moment.type;
    traced.signalled = event.signalled != 0;
  }
  std::vector<TracedMoment> moments;

 private:
  static TracedMoment::Kind kind_of(MomentKind kind) {
    using To = TracedMoment::Kind;
    switch (kind) {
      case MomentKind::kPosted:
        return To::kPosted;
      case MomentKind::kSent:
        return To::kSent;
      case MomentKind::kArrived:
        return To::kArrived;
      case MomentKind::kPlaced:
        return To::kPlaced;
      case MomentKind::kPlacedAlone:
        return To::kPlacedAlone;
      case MomentKind::kAcknowledged:
        return To::kAcknowledged;
      case MomentKind::kAnswered:
        return To::kAnswered;
      case MomentKind::kReported:
        return To::kReported;
      case MomentKind::kPolled:
        return To::kPolled;
    }
    return To::kPolled;
  }
};

// Traces all NICs of a world.
class Traced {
 public:
  explicit Traced(World& world, uint32_t session = 1) : world_(world) {
    for (uint32_t i = 0; i < world.host_count(); ++i) {
      if (!world.host(i).has_own_nic()) continue;
      taps_.push_back(std::make_unique<MessageTap>(recorder, session));
      world.host(i).nic().set_message_tap(taps_.back().get());
    }
  }
  ~Traced() { end(); }
  void end() {
    for (uint32_t i = 0; i < world_.host_count(); ++i) {
      if (!world_.host(i).has_own_nic()) continue;
      world_.host(i).nic().take_message_events();
      world_.host(i).nic().set_message_tap(nullptr);
    }
  }
  // What the trace says, when it has ended.
  MessageTimes times() {
    end();
    MessageTimes times(1'000'000'000);
    for (const TracedMoment& moment : recorder.moments) times.add(moment);
    times.finish(0);
    return times;
  }
  Recorder recorder;

 private:
  World& world_;
  std::vector<std::unique_ptr<MessageTap>> taps_;
};

struct Work {
  SendOp op;
  uint32_t bytes;
};
constexpr Work kWork[] = {{SendOp::kWrite, 64}, {SendOp::kWrite, 20'000}, {SendOp::kWriteImm, 5000},
                          {SendOp::kSend, 8},   {SendOp::kSend, 9000},    {SendOp::kRead, 20'000},
                          {SendOp::kRead, 4},   {SendOp::kFetchAdd, 8}};
constexpr size_t kMessages = 120;

bool takes_receive(SendOp op) { return op == SendOp::kSend || op == SendOp::kWriteImm; }

// Posts messages of all kinds, and takes their completions.
void run_work(Pair& pair, size_t messages, std::span<const Work> work) {
  size_t posted = 0, done = 0;
  while (done < messages && !testing::Test::HasFailure()) {
    while (posted < messages && posted - done < 24) {
      const Work& next = work[posted % work.size()];
      if (takes_receive(next.op)) {
        ASSERT_EQ(pair.post_receive(posted, 500'000, 20'000), 0);
      }
      ASSERT_EQ(pair.post(next.op, posted, pair.at(0, next.bytes), 0), 0);
      ++posted;
    }
    const auto some =
        take_completions(pair.world, *pair.near, *pair.near->send_cq, 1, Pair::kLimitNs);
    ASSERT_FALSE(some.empty());
    for (const auto& completion : some) ASSERT_EQ(completion.status, WcStatus::kSuccess);
    done += some.size();
    static_cast<void>(pair.far->poll(*pair.far->recv_cq));
  }
}

std::string steps_of(const TracedMessage& message) {
  std::string text = text_of(message.post.op);
  for (size_t i = 0; i < cli::kSteps; ++i)
    if (message.at[i])
      text += fmt::format(" {} {}", name_of(static_cast<Step>(i)), *message.at[i] - *message.at[0]);
  return text;
}

struct Line {
  Transport transport;
  const char* impairment;
};

class MessageTrace : public testing::TestWithParam<Line> {};

TEST_P(MessageTrace, EveryMessageHasAllItsStepsInOrder) {
  WorldSettings settings;
  settings.transport = GetParam().transport;
  Pair pair({}, settings);
  Traced traced(pair.world);
  for (uint32_t host = 0; host < 2; ++host)
    if (*GetParam().impairment != 0) pair.world.impair(host, GetParam().impairment, host + 1);
  run_work(pair, kMessages, kWork);
  const MessageTimes times = traced.times();
  EXPECT_EQ(times.counts().messages, kMessages);
  EXPECT_EQ(times.counts().complete, kMessages) << times.to_text();
  EXPECT_EQ(times.counts().in_order, kMessages);
  EXPECT_EQ(times.counts().missed, 0u);
  EXPECT_EQ(times.counts().failed, 0u);
  for (size_t i = 0; i < times.messages().size(); ++i) {
    const TracedMessage& message = times.messages()[i];
    EXPECT_EQ(message.post.wr_id, i);
    EXPECT_EQ(message.post.length_bytes, kWork[i % std::size(kWork)].bytes);
    EXPECT_TRUE(message.is_in_order()) << steps_of(message);
    for (size_t step = 0; step < cli::kSteps; ++step)
      EXPECT_TRUE(message.at[step]) << "message " << i << ", " << name_of(static_cast<Step>(step));
  }
}

INSTANTIATE_TEST_SUITE_P(Lines, MessageTrace,
                         testing::Values(Line{Transport::kHostnic, ""},
                                         Line{Transport::kHostnic, "tx drop 5%"},
                                         Line{Transport::kHostnic, "tx reorder 10% distance 4"},
                                         Line{Transport::kRoce, ""},
                                         Line{Transport::kRoce, "tx drop 5%"}));

// UC and UD: what is lost was sent and reported, and never placed.
void run_unreliable(QpType type, const char* impairment) {
  QpSettings qp;
  qp.type = type;
  Pair pair(qp);
  Traced traced(pair.world);
  if (*impairment != 0) pair.world.impair(0, impairment, 1);
  constexpr size_t kSends = 100;
  size_t received = 0;
  for (size_t i = 0; i < kSends; ++i) {
    ASSERT_EQ(pair.post_receive(i, 500'000, 4096), 0);
    const Sge sge = pair.at(0, 100);
    driver::SendRequest request = Pair::request(SendOp::kSend, i, sge, 0, 0);
    if (type == QpType::kUd)
      request.ud = {.ip = address_of(1), .qpn = pair.far->qpn(), .qkey = qp.qkey};
    ASSERT_EQ(pair.near->post_send(request), 0);
    ASSERT_EQ(
        take_completions(pair.world, *pair.near, *pair.near->send_cq, 1, Pair::kLimitNs).size(),
        1u);
    pair.world.run_for(100 * kMicrosecond);
    received += pair.far->poll(*pair.far->recv_cq).size();
  }
  const MessageTimes times = traced.times();
  EXPECT_EQ(times.counts().messages, kSends);
  EXPECT_EQ(times.counts().complete, kSends) << times.to_text();
  EXPECT_EQ(times.counts().in_order, kSends);
  EXPECT_EQ(times.counts().unplaced, kSends - received);
  if (*impairment == 0) {
    EXPECT_EQ(received, kSends);
  } else {
    EXPECT_LT(received, kSends);
  }
}

TEST(MessageTraceUnreliable, Connected) { run_unreliable(QpType::kUc, ""); }
TEST(MessageTraceUnreliable, ConnectedWithLoss) { run_unreliable(QpType::kUc, "tx drop 20%"); }
TEST(MessageTraceUnreliable, Datagrams) { run_unreliable(QpType::kUd, ""); }
TEST(MessageTraceUnreliable, DatagramsWithLoss) { run_unreliable(QpType::kUd, "tx drop 20%"); }

TEST(MessageTraceSessions, NothingIsSaidWhileNobodyTraces) {
  Pair pair;
  run_work(pair, 40, kWork);
  EXPECT_TRUE(pair.near->host->channel().events.empty());
  // A trace begins in the midst of traffic, and what was posted before is not its business.
  ASSERT_EQ(pair.post(SendOp::kWrite, 7, pair.at(0, 64)), 0);
  Traced first(pair.world, 1);
  run_work(pair, 1, std::span(kWork).first(1));  // takes the completion of the one before, too
  pair.world.run_for(kMillisecond);
  static_cast<void>(pair.near->poll(*pair.near->send_cq));
  run_work(pair, 16, kWork);
  const MessageTimes times = first.times();
  EXPECT_EQ(times.counts().messages, 17u);
  EXPECT_EQ(times.counts().complete, 17u) << times.to_text();
  // The next one begins anew, and so does the connection in it.
  Traced second(pair.world, 2);
  run_work(pair, 8, kWork);
  const MessageTimes again = second.times();
  EXPECT_EQ(again.counts().messages, 8u);
  EXPECT_EQ(again.counts().complete, 8u);
  EXPECT_EQ(again.counts().in_order, 8u);
}

TEST(MessageTraceSessions, AQueuePairMayBeConnectedAnew) {
  Pair pair;
  Traced traced(pair.world);
  run_work(pair, 10, kWork);
  for (Endpoint* end : {pair.near.get(), pair.far.get()}) pair.world.reset_to_init(*end);
  pair.world.connect(*pair.near, *pair.far);
  run_work(pair, 10, kWork);
  const MessageTimes times = traced.times();
  EXPECT_EQ(times.counts().messages, 20u);
  EXPECT_EQ(times.counts().complete, 20u) << times.to_text();
}

TEST(MessageTraceSessions, AMessageThatFailsIsNoneThatIsComplete) {
  Pair pair;
  Traced traced(pair.world);
  run_work(pair, 4, kWork);
  ASSERT_EQ(pair.post_to(SendOp::kWrite, 99, pair.at(0, 64), pair.remote.address(), 12345), 0);
  const auto failed =
      take_completions(pair.world, *pair.near, *pair.near->send_cq, 1, Pair::kLimitNs);
  ASSERT_EQ(failed.size(), 1u);
  ASSERT_NE(failed[0].status, WcStatus::kSuccess);
  const MessageTimes times = traced.times();
  EXPECT_EQ(times.counts().messages, 5u);
  EXPECT_EQ(times.counts().complete, 4u);
  EXPECT_EQ(times.counts().failed, 1u);
}

TEST(MessageTraceSessions, WhatFindsTheRingFullIsCounted) {
  Pair pair;
  Traced traced(pair.world);
  // The NIC has no turn while the program polls more than the ring holds.
  driver::MessageLog& log = *pair.near->send_cq->messages;
  run_work(pair, 1, kWork);
  pair.world.run_for(kMillisecond);
  for (uint32_t i = 0; i < 2 * kEventRingSize; ++i)
    log.add({.kind = MessageEventKind::kPolled, .qpn = pair.near->qpn()}, 1);
  pair.world.run_for(kMillisecond);
  run_work(pair, 2, kWork);
  const MessageTimes times = traced.times();
  EXPECT_EQ(times.counts().messages, 3u);
  EXPECT_EQ(times.counts().missed, kEventRingSize + 1);
}

}  // namespace
}  // namespace hostnic::sim
