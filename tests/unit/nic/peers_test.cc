// SPDX-License-Identifier: BSD-3-Clause
// What is known of what hosts speak: who is asked when, what is believed, and that nobody can spoil
// it for others.
#include "dataplane/nic/management/peers.h"

#include <gtest/gtest.h>

#include "protocol/wire/hostnic/headers.h"

namespace hostnic {
namespace {

constexpr uint64_t kMillisecond = 1'000'000, kSecond = 1'000'000'000;
constexpr Ipv4Address kOwn{0x0a000001};
constexpr Ipv4Address host(uint32_t last) { return Ipv4Address{0x0a000100 + last}; }
constexpr uint32_t kClient = 1, kOther = 2;
constexpr auto kNative = Transport::kHostnic, kStandard = Transport::kRoce;

cm::PeerFacts facts(Transport wanted, uint8_t version = wire::kNativeVersion) {
  return {.version = version, .policy = 0, .wanted = wanted};
}

class PeersTest : public testing::Test {
 protected:
  static NicSettings settings_of(Transport wanted) {
    NicSettings settings;
    settings.ip = kOwn;
    settings.transport = wanted;
    return settings;
  }
  std::optional<Transport> transport_to(Ipv4Address peer, uint32_t client = kClient) {
    return peers.transport_to(kOwn, peer, client, now);
  }
  // The one question that is due.
  cm::PeerQuestion asked(Ipv4Address peer) {
    const auto due = peers.next_due(now);
    EXPECT_TRUE(due.has_value());
    if (!due) return {};
    EXPECT_EQ(due->own, kOwn);
    EXPECT_EQ(due->peer, peer);
    EXPECT_FALSE(peers.next_due(now)) << "one at a time";
    return cm::question_in(due->mad).value();
  }
  bool answer(Ipv4Address from, const cm::PeerQuestion& question,
              std::optional<cm::PeerFacts> said) {
    std::optional<cm::Mad> reply;
    const bool taken = peers.receive(
        cm::mad_of(cm::PeerAnswer{question.transaction_id, question.request_id, said}), kOwn, from,
        now, reply);
    EXPECT_FALSE(reply) << "answers are not answered";
    return taken;
  }
  // What the host that asks us is told.
  std::optional<cm::PeerFacts> told(Ipv4Address asker, const cm::PeerFacts& its) {
    std::optional<cm::Mad> reply;
    EXPECT_TRUE(peers.receive(cm::mad_of(cm::PeerQuestion{7, 8, its}), kOwn, asker, now, reply));
    if (!reply) return std::nullopt;
    const auto answer = cm::answer_in(*reply);
    EXPECT_EQ(answer->transaction_id, 7u);
    EXPECT_EQ(answer->request_id, 8u);
    return answer->facts;
  }
  void fall_silent(Ipv4Address peer) {
    EXPECT_FALSE(transport_to(peer));
    for (uint32_t i = 0; i < Peers::kAttempts; ++i) {
      silent = asked(peer);
      now = peers.next_deadline_ns();
    }
    EXPECT_FALSE(peers.next_due(now));
  }

  NicSettings settings = settings_of(Transport::kAuto);
  Counters counters;
  Peers peers{settings, counters};
  TimeNs now = kSecond;
  cm::PeerQuestion silent;  // the last of fall_silent()
};

TEST_F(PeersTest, AHostnicSpeaksTheNativeTransport) {
  EXPECT_FALSE(transport_to(host(1)));
  const auto question = asked(host(1));
  EXPECT_EQ(question.facts, facts(Transport::kAuto));
  EXPECT_TRUE(answer(host(1), question, facts(Transport::kHostnic)));
  EXPECT_EQ(transport_to(host(1)), kNative);
  EXPECT_EQ(peers.next_deadline_ns(), UINT64_MAX);
  EXPECT_FALSE(peers.next_due(now + kSecond));
}

TEST_F(PeersTest, EachReasonForTheStandard) {
  const std::optional<cm::PeerFacts> answers[] = {
      std::nullopt, facts(Transport::kRoce), facts(Transport::kAuto, 99),
      facts(Transport::kAuto, 2), cm::PeerFacts{wire::kNativeVersion, 1, Transport::kAuto}};
  uint32_t number = 0;
  for (const auto& said : answers) {
    const Ipv4Address peer = host(++number);
    EXPECT_FALSE(transport_to(peer));
    EXPECT_TRUE(answer(peer, asked(peer), said));
    EXPECT_EQ(transport_to(peer), kStandard) << number;
  }
}

TEST_F(PeersTest, WhoIsSilentIsAskedMoreAndMoreRarelyAndSpeaksTheStandard) {
  EXPECT_FALSE(transport_to(host(1)));
  const TimeNs start = now;
  uint64_t pause = Peers::kFirstPauseNs;
  const cm::PeerQuestion first = asked(host(1));
  for (uint32_t i = 1; i < Peers::kAttempts; ++i, pause *= 2) {
    EXPECT_FALSE(peers.next_due(now + pause - 1));
    now += pause;
    EXPECT_EQ(asked(host(1)), first) << "the same question";
    EXPECT_FALSE(transport_to(host(1)));
  }
  now += pause;
  EXPECT_EQ(now - start, Peers::kSilentAfterNs);
  EXPECT_FALSE(peers.next_due(now));
  EXPECT_EQ(transport_to(host(1)), kStandard);
  EXPECT_EQ(counters.get(Counter::peer_questions_sent), uint64_t{Peers::kAttempts});
}

TEST_F(PeersTest, OnlyTheHostThatWasAskedAndOnlyThatQuestionIsAnswered) {
  EXPECT_FALSE(transport_to(host(1)));
  const auto question = asked(host(1));
  const auto said = facts(Transport::kAuto);
  EXPECT_FALSE(answer(host(2), question, said)) << "another host";
  auto wrong = question;
  wrong.transaction_id ^= uint64_t{1} << 63;
  EXPECT_FALSE(answer(host(1), wrong, said));
  wrong = question;
  wrong.request_id ^= 1;
  EXPECT_FALSE(answer(host(1), wrong, said)) << "rdma_cm's, perhaps";
  EXPECT_FALSE(transport_to(host(1)));
  EXPECT_TRUE(answer(host(1), question, said));
  EXPECT_FALSE(answer(host(1), question, std::nullopt)) << "it has been answered";
  EXPECT_EQ(transport_to(host(1)), kNative);
}

TEST_F(PeersTest, NoTwoQuestionsHaveTheSameNumbers) {
  EXPECT_FALSE(transport_to(host(1)));
  const auto first = asked(host(1));
  EXPECT_FALSE(transport_to(host(2)));
  const auto second = asked(host(2));
  EXPECT_NE(first.transaction_id, second.transaction_id);
  EXPECT_NE(first.request_id, second.request_id);
}

TEST_F(PeersTest, WhoAsksIsKnown) {
  EXPECT_EQ(told(host(1), facts(Transport::kAuto)), facts(Transport::kAuto));
  EXPECT_EQ(transport_to(host(1)), kNative);
  EXPECT_EQ(told(host(2), facts(Transport::kRoce)), facts(Transport::kAuto));
  EXPECT_EQ(transport_to(host(2)), kStandard);
  EXPECT_FALSE(peers.next_due(now)) << "nobody has to be asked";
}

TEST_F(PeersTest, WhoAsksMeanwhileHasAnswered) {
  EXPECT_FALSE(transport_to(host(1)));
  asked(host(1));
  EXPECT_TRUE(told(host(1), facts(Transport::kAuto)));
  EXPECT_EQ(transport_to(host(1)), kNative);
  EXPECT_EQ(peers.next_deadline_ns(), UINT64_MAX);
}

// Else the two would speak differently on the connection that one of them has made already.
TEST_F(PeersTest, WhoWasSilentIsToldThatTheStandardIsSpoken) {
  fall_silent(host(1));
  EXPECT_EQ(transport_to(host(1)), kStandard);
  EXPECT_EQ(told(host(1), facts(Transport::kAuto)), facts(Transport::kRoce));
  EXPECT_EQ(transport_to(host(1)), kStandard);
  now += Peers::kKnownNs;
  EXPECT_EQ(told(host(1), facts(Transport::kAuto)), facts(Transport::kAuto));
  EXPECT_EQ(transport_to(host(1)), kNative);
}

TEST_F(PeersTest, ALateAnswerCounts) {
  fall_silent(host(1));
  EXPECT_TRUE(answer(host(1), silent, facts(Transport::kAuto)));
  EXPECT_EQ(transport_to(host(1)), kNative);
}

TEST_F(PeersTest, KnowledgeAges) {
  EXPECT_TRUE(told(host(1), facts(Transport::kAuto)));
  now += Peers::kKnownNs - 1;
  EXPECT_EQ(transport_to(host(1)), kNative);
  ++now;
  EXPECT_FALSE(transport_to(host(1)));
  EXPECT_TRUE(answer(host(1), asked(host(1)), std::nullopt));
  EXPECT_EQ(transport_to(host(1)), kStandard);
}

TEST_F(PeersTest, AFailedConnectionIsAReasonToAskAnew) {
  EXPECT_TRUE(told(host(1), facts(Transport::kAuto)));
  EXPECT_TRUE(told(host(2), facts(Transport::kAuto)));
  peers.doubt(kOwn, host(1));
  peers.doubt(kOwn, host(99));
  EXPECT_EQ(transport_to(host(2)), kNative);
  EXPECT_FALSE(transport_to(host(1)));
  EXPECT_TRUE(answer(host(1), asked(host(1)), facts(Transport::kAuto)));
  EXPECT_EQ(transport_to(host(1)), kNative);
}

TEST_F(PeersTest, KnowledgeIsOfOneOfOurAddresses) {
  EXPECT_TRUE(told(host(1), facts(Transport::kAuto)));
  EXPECT_FALSE(peers.transport_to(Ipv4Address{0x0a000002}, host(1), kClient, now));
}

TEST_F(PeersTest, OurselvesWeKnow) {
  EXPECT_EQ(transport_to(kOwn), kNative);
  EXPECT_FALSE(peers.next_due(now));
}

TEST_F(PeersTest, PrefixesDecideWhoIsAsked) {
  settings.transport = Transport::kHostnic;
  settings.transports = {{gid_of(host(0)), 96 + 24, Transport::kRoce},
                         {gid_of(host(7)), 128, Transport::kAuto}};
  EXPECT_EQ(transport_to(host(1)), kStandard);
  EXPECT_EQ(transport_to(Ipv4Address{0x0b000000}), kNative);
  EXPECT_FALSE(peers.next_due(now));
  EXPECT_FALSE(transport_to(host(7)));
  EXPECT_EQ(asked(host(7)).facts.wanted, Transport::kAuto);
  EXPECT_EQ(told(host(1), facts(Transport::kAuto)), facts(Transport::kRoce));
  EXPECT_EQ(told(Ipv4Address{0x0b000000}, facts(Transport::kAuto)), facts(Transport::kHostnic));
}

TEST_F(PeersTest, AClientHasSoManyQuestionsAndOthersTheirs) {
  for (uint32_t i = 0; i < 2 * Peers::kQuestionsEach; ++i) EXPECT_FALSE(transport_to(host(i)));
  uint32_t sent = 0;
  while (peers.next_due(now)) ++sent;
  EXPECT_EQ(sent, Peers::kQuestionsEach);
  EXPECT_FALSE(transport_to(host(200), kOther));
  asked(host(200));
  peers.forget_client(kClient);
  now = peers.next_deadline_ns();
  asked(host(200));
  EXPECT_FALSE(transport_to(host(Peers::kQuestionsEach)));
  asked(host(Peers::kQuestionsEach));
}

// A flood of questions from addresses that somebody has made up.
TEST_F(PeersTest, StrangersDisplaceNothingThatIsUsed) {
  constexpr uint32_t kUsed = 500;
  uint32_t used = 0;
  for (uint32_t i = 0; i < kUsed; ++i) {
    EXPECT_FALSE(transport_to(host(i)));
    EXPECT_TRUE(answer(host(i), asked(host(i)), facts(Transport::kHostnic)));
    EXPECT_EQ(transport_to(host(i)), kNative);
  }
  for (uint32_t i = 0; i < 20'000; ++i) {
    now += 100'000;
    told(Ipv4Address{0x0b000000 + i}, facts(Transport::kRoce));
  }
  for (uint32_t i = 0; i < kUsed; ++i) used += transport_to(host(i)) == kNative ? 1 : 0;
  EXPECT_EQ(used, kUsed);
  EXPECT_LE(peers.view(now).size(), size_t{Peers::kSets} * Peers::kWays);
}

// A host that is not answered is not believed either: both ends would speak differently.
TEST_F(PeersTest, BeyondTheRateQuestionsAreNotHeard) {
  uint32_t answered = 0;
  for (uint32_t i = 0; i < 2000; ++i) answered += told(host(1), facts(Transport::kRoce)) ? 1 : 0;
  EXPECT_EQ(answered, Peers::kAnswerBurst);
  EXPECT_FALSE(told(host(2), facts(Transport::kAuto)));
  EXPECT_EQ(counters.get(Counter::peer_questions_answered), uint64_t{Peers::kAnswerBurst});
  EXPECT_EQ(counters.get(Counter::peer_questions_refused), 2001u - Peers::kAnswerBurst);
  EXPECT_FALSE(transport_to(host(2)));
  now += kSecond / Peers::kAnswersPerSecond;
  EXPECT_TRUE(told(host(2), facts(Transport::kAuto)));
  EXPECT_FALSE(told(host(2), facts(Transport::kAuto)));
}

TEST_F(PeersTest, OtherDatagramsAreNotTaken) {
  std::optional<cm::Mad> reply;
  EXPECT_FALSE(peers.receive({1, cm::SidrReq{.service_id = 0x1234}}, kOwn, host(1), now, reply));
  EXPECT_FALSE(peers.receive({1, cm::SidrRep{}}, kOwn, host(1), now, reply));
  EXPECT_FALSE(peers.receive({1, cm::Rtu{}}, kOwn, host(1), now, reply));
  EXPECT_FALSE(reply);
}

TEST_F(PeersTest, PeopleAreTold) {
  EXPECT_TRUE(told(host(1), facts(Transport::kAuto)));
  const std::vector<PeerView> views = peers.view(now + 3 * kSecond);
  ASSERT_EQ(views.size(), 1u);
  EXPECT_EQ(views[0].nic, "hnic0");
  EXPECT_EQ(views[0].own, "10.0.0.1");
  EXPECT_EQ(views[0].peer, "10.0.1.1");
  EXPECT_EQ(views[0].transport, "hostnic");
  EXPECT_EQ(views[0].says, "hostnic version 3 policy selective wants auto");
  EXPECT_EQ(views[0].age_s, 3u);
  EXPECT_FALSE(transport_to(host(2)));
  asked(host(2));
  const PeerView last = peers.view(now).back();
  EXPECT_TRUE(last.asked);
  EXPECT_EQ(last.peer, "10.0.1.2");
  EXPECT_EQ(last.questions, 1u);
}

}  // namespace
}  // namespace hostnic
