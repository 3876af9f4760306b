// SPDX-License-Identifier: BSD-3-Clause
// Questions to other hosts: how often they go, when they are given up, whose answer is taken, and
// who has had his share.
#include "dataplane/daemon/observe/inquiry_book.h"

#include <gtest/gtest.h>

namespace hostnic {
namespace {

using State = InquiryResult::State;
constexpr TimeNs kBegin = 1'000'000'000'000;
constexpr uint64_t kMsNs = 1'000'000;

class InquiryBookTest : public testing::Test {
 protected:
  static InquiryKey key(uint32_t qpn, uint32_t client = 1) {
    return {.client_id = client,
            .own = Ipv4Address{0x0a4d0001},
            .peer = Ipv4Address{0x0a4d0002},
            .own_qpn = qpn,
            .peer_qpn = 0x22};
  }
  InquiryBook::Question* open(const InquiryKey& about, TimeNs now_ns) {
    is_new_ = false;
    return book_.open(
        about, now_ns,
        [this] {
          return InquiryBook::Numbers{++drawn_, drawn_ + 1000};
        },
        is_new_);
  }

  InquiryBook book_;
  bool is_new_ = false;
  uint32_t drawn_ = 0;
};

TEST_F(InquiryBookTest, AQuestionGoesFourTimesAndThenTheKernelIsAsked) {
  auto* const question = open(key(1), kBegin);
  ASSERT_NE(question, nullptr);
  uint32_t sent = 0, handshakes = 0, datagrams = 0;
  TimeNs given_up_ns = 0;
  for (TimeNs now = kBegin; given_up_ns == 0 && now < kBegin + 3000 * kMsNs; now += kMsNs) {
    EXPECT_EQ(open(key(1), now), question);
    const auto due = InquiryBook::due(*question, now);
    sent += due.question ? 1 : 0;
    handshakes += due.handshake ? 1 : 0;
    if (due.handshake) {
      EXPECT_EQ(now, kBegin + 70 * kMsNs) << "10, 20 and 40 ms after each other";
    }
    datagrams += due.datagram ? 1 : 0;
    if (due.is_given_up) given_up_ns = now;
  }
  EXPECT_EQ(sent, InquiryBook::kAttempts);
  EXPECT_EQ(handshakes, 1u);
  EXPECT_EQ(datagrams, 1u);
  EXPECT_EQ(given_up_ns, kBegin + InquiryBook::kSilentNs);
}

TEST_F(InquiryBookTest, APaddedOneIsGivenUpEarlierAndAsksNoKernel) {
  InquiryKey padded = key(1);
  padded.datagram_bytes = 4096;
  auto* const question = open(padded, kBegin);
  ASSERT_NE(question, nullptr);
  for (TimeNs now = kBegin; now < kBegin + InquiryBook::kLongSilentNs; now += kMsNs) {
    const auto due = InquiryBook::due(*question, now);
    EXPECT_FALSE(due.handshake || due.datagram || due.is_given_up);
  }
  EXPECT_TRUE(InquiryBook::due(*question, kBegin + InquiryBook::kLongSilentNs).is_given_up);
}

TEST_F(InquiryBookTest, AnAnswerIsKeptForTwoSecondsAndThenAskedForAnew) {
  auto* question = open(key(1), kBegin);
  EXPECT_TRUE(is_new_);
  InquiryBook::settle(*question, State::kAnswered, kBegin + kMsNs);
  const TimeNs last = kBegin + kMsNs + InquiryBook::kFreshNs - 1;
  question = open(key(1), last);
  EXPECT_FALSE(is_new_);
  EXPECT_EQ(question->result.state, State::kAnswered);
  EXPECT_FALSE(InquiryBook::due(*question, last).question) << "an answer asks nothing";
  question = open(key(1), last + 1);
  EXPECT_TRUE(is_new_);
  EXPECT_EQ(question->result.state, State::kAsking);
  EXPECT_EQ(question->numbers.transaction_id, 2u) << "a late answer to the first is none to this";
  EXPECT_TRUE(InquiryBook::due(*question, last + 1).question);
}

TEST_F(InquiryBookTest, OnlyTheHostThatWasAskedAnswersAndByItsNumbers) {
  auto* const question = open(key(1), kBegin);
  const InquiryKey& k = question->key;
  const InquiryBook::Numbers right = question->numbers;
  EXPECT_EQ(book_.asked(k.nic, k.own, k.peer, right), question);
  EXPECT_EQ(book_.asked(k.nic, k.own, Ipv4Address{0x0a4d0003}, right), nullptr);
  EXPECT_EQ(book_.asked(k.nic, Ipv4Address{0x0a4d0003}, k.peer, right), nullptr);
  EXPECT_EQ(book_.asked(k.nic, k.own, k.peer, {right.transaction_id + 1, right.request_id}),
            nullptr);
  EXPECT_EQ(book_.asked(k.nic, k.own, k.peer, {right.transaction_id, right.request_id + 1}),
            nullptr);
}

TEST_F(InquiryBookTest, AClientHasItsShareAndNotOthers) {
  for (uint32_t i = 0; i < InquiryBook::kQuestionsEach; ++i)
    ASSERT_NE(open(key(i, /*client=*/1), kBegin), nullptr);
  EXPECT_EQ(open(key(99, 1), kBegin), nullptr);
  EXPECT_NE(open(key(0, 1), kBegin), nullptr) << "one that is open already";
  EXPECT_NE(open(key(99, 2), kBegin), nullptr);
}

TEST_F(InquiryBookTest, WhoeverDoesNotComeAgainHasGivenUp) {
  for (uint32_t i = 0; i < InquiryBook::kQuestions; ++i)
    ASSERT_NE(open(key(i, i), kBegin + i), nullptr);
  EXPECT_EQ(open(key(999, 999), kBegin + kMsNs), nullptr) << "all are open";
  const TimeNs later = kBegin + 2 * InquiryBook::kSilentNs;
  auto* const question = open(key(999, 999), later);
  ASSERT_NE(question, nullptr);
  EXPECT_EQ(book_.index_of(*question), 0u) << "the oldest makes room";
}

}  // namespace
}  // namespace hostnic
