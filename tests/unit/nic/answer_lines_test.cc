// SPDX-License-Identifier: BSD-3-Clause
// Whose answers leave next: jobs and queue pairs in their client's line. Without a NIC.
#include "dataplane/nic/answers/answer_lines.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace hostnic {
namespace {

using Then = AnswerStep::Then;

class AnswerLinesTest : public testing::Test {
 protected:
  ClientState& make_client() {
    auto made = ClientChannel::create({.client_id = static_cast<uint32_t>(channels_.size() + 1),
                                       .max_qps = 8,
                                       .arena_bytes = 1 << 16,
                                       .program = "test",
                                       .pid = 0});
    EXPECT_TRUE(made);
    channels_.push_back(std::move(*made));
    EXPECT_EQ(clients_.attach(channels_.back().get()), 0);
    ClientState& client = ClientList::state_of(*channels_.back());
    client.share.begin_turn(/*sole=*/true);
    return client;
  }
  QpContext& make_qp(const ClientState& client) {
    QpContext* const qp = qps_.add(std::make_unique<QpContext>());
    qp->client = client.channel;
    return *qp;
  }
  void TearDown() override {
    for (const auto& channel : channels_) clients_.detach(ClientList::state_of(*channel));
  }

  // Serves the client's line, and returns whose turn it was, in order. `step` is asked for each.
  std::vector<const QpContext*> served(ClientState& client,
                                       const std::function<AnswerStep(const QpContext&)>& step) {
    std::vector<const QpContext*> seen;
    lines_.serve(client, [&](QpContext& qp, uint32_t, uint32_t) {
      seen.push_back(&qp);
      return step(qp);
    });
    return seen;
  }
  static AnswerStep step(Then then, uint32_t payload_bytes = 100) {
    if (then == Then::kStopped) return {.then = then};
    return {.then = then, .done = 1, .packets = 1, .payload_bytes = payload_bytes};
  }

  Counters counters_;
  TimeNs now_ = 0;
  std::vector<std::unique_ptr<ClientChannel>> channels_;
  ClientList clients_{counters_, now_};
  QpDirectory qps_{8};
  AnswerLines lines_{qps_, clients_, 8};
};

TEST_F(AnswerLinesTest, AClientAloneHasHalfOfTheJobs) {
  ClientState& many = make_client();
  ClientState& few = make_client();
  QpContext& greedy = make_qp(many);
  uint32_t taken = 0;
  while (lines_.add_job(greedy)) ++taken;
  EXPECT_EQ(taken, kReadJobs / 2);
  EXPECT_EQ(lines_.jobs(), taken);
  EXPECT_TRUE(lines_.add_job(make_qp(few)));
  lines_.add_qp(greedy);  // queue pairs have places of their own
  lines_.forget(greedy);
  EXPECT_EQ(lines_.jobs(), 1u);
  EXPECT_EQ(many.answer_line.count, 0u);
  EXPECT_EQ(greedy.answers_in_line, 0u);
}

TEST_F(AnswerLinesTest, JobsLeaveInTheOrderOfTheirRequests) {
  ClientState& client = make_client();
  QpContext& first = make_qp(client);
  QpContext& second = make_qp(client);
  for (QpContext* const qp : {&first, &second, &first}) ASSERT_TRUE(lines_.add_job(*qp));
  EXPECT_EQ(served(client, [](const QpContext&) { return step(Then::kOver); }),
            (std::vector<const QpContext*>{&first, &second, &first}));
  EXPECT_EQ(client.answer_line.count, 0u);
  EXPECT_EQ(lines_.jobs(), 0u);
  EXPECT_EQ(first.answers_in_line + second.answers_in_line, 0u);
}

TEST_F(AnswerLinesTest, AJobThatFindsNoRoomStopsTheLine) {
  ClientState& client = make_client();
  QpContext& first = make_qp(client);
  QpContext& second = make_qp(client);
  lines_.add_job(first);
  lines_.add_job(second);
  const auto full = [](const QpContext&) { return step(Then::kStopped); };
  EXPECT_EQ(served(client, full), (std::vector<const QpContext*>{&first}));
  EXPECT_EQ(client.answer_line.count, 2u);
}

TEST_F(AnswerLinesTest, AQueuePairThatFindsNoRoomLetsOthersPass) {
  ClientState& client = make_client();
  QpContext& full = make_qp(client);
  QpContext& other = make_qp(client);
  lines_.add_qp(full);
  lines_.add_qp(other);
  const auto one_is_full = [&](const QpContext& qp) {
    return step(&qp == &full ? Then::kStopped : Then::kOver);
  };
  EXPECT_EQ(served(client, one_is_full), (std::vector<const QpContext*>{&full, &other}));
  EXPECT_EQ(client.answer_line.count, 1u);
  EXPECT_EQ(served(client, one_is_full), (std::vector<const QpContext*>{&full}))
      << "looked at once a turn";
}

TEST_F(AnswerLinesTest, QueuePairsTakeTurns) {
  ClientState& client = make_client();
  QpContext& first = make_qp(client);
  QpContext& second = make_qp(client);
  lines_.add_qp(first);
  lines_.add_qp(second);
  const auto endless = [](const QpContext&) { return step(Then::kGoesOn); };
  for (const QpContext* const qp : {&first, &second, &first}) {
    const auto seen = served(client, endless);
    EXPECT_EQ(seen, std::vector<const QpContext*>(kTxBudget, qp));
  }
}

// Whatever leaves comes out of the client's share, and counts.
TEST_F(AnswerLinesTest, AShareThatIsSpentEndsTheTurn) {
  ClientState& client = make_client();
  QpContext& qp = make_qp(client);
  const uint64_t before = client.share.sent_bytes();
  client.share = {};
  client.share.begin_turn(/*sole=*/false);
  lines_.add_qp(qp);
  const uint32_t payload = SendShare::kQuantumBytes / 2;
  const auto seen = served(client, [&](const QpContext&) { return step(Then::kGoesOn, payload); });
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_TRUE(client.share.spent());
  EXPECT_EQ(client.share.sent_bytes() - before, 2 * (payload + SendShare::kHeaderBytes));
  client.share.begin_turn(/*sole=*/false);
  const int32_t left = client.share.left_bytes();
  served(client, [](const QpContext&) { return AnswerStep{.then = Then::kOver, .done = 1}; });
  EXPECT_EQ(client.share.left_bytes(), left - SendShare::kRefusedBytes)
      << "work of which nothing leaves counts, too";
}

}  // namespace
}  // namespace hostnic
