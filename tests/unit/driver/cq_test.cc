// SPDX-License-Identifier: BSD-3-Clause
// Completion queues: order, overflow, arming, resizing, and the send queue slots that polling
// frees.
#include "verbs-shim/driver/cq.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <deque>
#include <random>
#include <thread>

namespace hostnic::driver {
namespace {

Completion completion(uint64_t wr_id, uint32_t qpn = 1, WcStatus status = WcStatus::kSuccess) {
  Completion c;
  c.wr_id = wr_id;
  c.qpn = qpn;
  c.status = status;
  return c;
}

class CqTest : public testing::Test {
 protected:
  bool push(Cq& cq, uint64_t wr_id, bool solicited = false, WcStatus status = WcStatus::kSuccess) {
    return cq.push(completion(wr_id, 1, status), solicited, nullptr, 0);
  }
  std::vector<uint64_t> poll(Cq& cq, int max) {
    std::vector<Completion> out(static_cast<size_t>(max));
    const int taken = cq.poll(out.data(), max);
    std::vector<uint64_t> ids;
    for (int i = 0; i < taken; ++i) ids.push_back(out[static_cast<size_t>(i)].wr_id);
    return ids;
  }
  static void count(void* events) { ++*static_cast<int*>(events); }

  int events_ = 0;
};
using Ids = std::vector<uint64_t>;

TEST_F(CqTest, FirstInFirstOutAcrossTheWrap) {
  Cq cq(3, nullptr, nullptr);
  EXPECT_TRUE(cq.empty());
  for (uint64_t i = 0; i < 20; i += 2) {
    EXPECT_TRUE(push(cq, i));
    EXPECT_TRUE(push(cq, i + 1));
    EXPECT_FALSE(cq.empty());
    EXPECT_EQ(poll(cq, 1), Ids{i});
    EXPECT_EQ(poll(cq, 5), Ids{i + 1});
    EXPECT_EQ(poll(cq, 5), Ids{});
  }
  EXPECT_EQ(poll(cq, 0), Ids{});
}

TEST_F(CqTest, OverflowKillsTheQueueButNotWhatIsInIt) {
  Cq cq(2, nullptr, nullptr);
  EXPECT_TRUE(push(cq, 1));
  EXPECT_TRUE(push(cq, 2));
  EXPECT_FALSE(cq.overflowed()) << "full is not overflowed";
  EXPECT_FALSE(push(cq, 3));
  EXPECT_TRUE(cq.overflowed());
  EXPECT_EQ(poll(cq, 4), (Ids{1, 2}));
  EXPECT_FALSE(push(cq, 4)) << "a dead queue takes nothing more";
  EXPECT_EQ(poll(cq, 4), Ids{});
}

TEST_F(CqTest, ArmedForAnyRaisesOneEvent) {
  Cq cq(8, &CqTest::count, &events_);
  push(cq, 1);
  EXPECT_EQ(events_, 0) << "not armed";
  poll(cq, 8);
  cq.arm(Arm::kAny);
  EXPECT_EQ(events_, 0) << "what was polled before the arming raises nothing";
  push(cq, 2);
  EXPECT_EQ(events_, 1);
  push(cq, 3);
  EXPECT_EQ(events_, 1) << "one arming, one event";
  poll(cq, 8);
  cq.arm(Arm::kAny);
  poll(cq, 8);
  push(cq, 4);
  EXPECT_EQ(events_, 2) << "polling never disarms";
}

// As mlx4's and mlx5's: what came since the last event is told when the queue is armed.
TEST_F(CqTest, ArmingAQueueThatHoldsACompletionRaisesAnEventAtOnce) {
  Cq cq(8, &CqTest::count, &events_);
  std::atomic<uint32_t> armed{0};
  cq.armed_total = &armed;
  push(cq, 1);
  cq.arm(Arm::kAny);
  EXPECT_EQ(events_, 1);
  EXPECT_EQ(armed, 0u) << "that arming is used up";
  push(cq, 2);
  EXPECT_EQ(events_, 1);
  cq.arm(Arm::kAny);
  EXPECT_EQ(events_, 2) << "the second came after the event";
  EXPECT_EQ(poll(cq, 1), Ids{1});
  cq.arm(Arm::kAny);
  EXPECT_EQ(events_, 2) << "the second has been told";
  EXPECT_EQ(armed, 1u);
}

// perftest takes an event, arms, and polls once: a second event about the same completion would
// find nothing to poll.
TEST_F(CqTest, ACompletionIsToldOnce) {
  Cq cq(8, &CqTest::count, &events_);
  cq.arm(Arm::kAny);
  for (int round = 1; round <= 5; ++round) {
    push(cq, 1);
    ASSERT_EQ(events_, round);
    cq.arm(Arm::kAny);
    ASSERT_EQ(events_, round);
    ASSERT_EQ(poll(cq, 1), Ids{1});
  }
}

TEST_F(CqTest, PolledAndForgottenCompletionsAreNotTold) {
  Cq cq(8, &CqTest::count, &events_);
  for (uint64_t i = 0; i < 3; ++i) push(cq, i);
  poll(cq, 8);
  cq.arm(Arm::kAny);
  EXPECT_EQ(events_, 0);
  push(cq, 4);
  EXPECT_EQ(events_, 1);
  push(cq, 5);
  push(cq, 6);
  poll(cq, 2);  // one that was told, and one that was not
  cq.arm(Arm::kAny);
  EXPECT_EQ(events_, 2);
}

TEST_F(CqTest, ArmedForSolicitedAQueueLooksForSolicitedOnesAndErrors) {
  for (const bool solicited : {true, false}) {
    events_ = 0;
    Cq cq(4, &CqTest::count, &events_);
    for (uint64_t i = 0; i < 2; ++i) push(cq, i);
    cq.arm(Arm::kSolicited);
    EXPECT_EQ(events_, 0);
    push(cq, 4, solicited, solicited ? WcStatus::kSuccess : WcStatus::kWrFlushErr);
    EXPECT_EQ(events_, 1);
    cq.arm(Arm::kSolicited);
    EXPECT_EQ(events_, 1) << "told";
    poll(cq, 4);
  }
  for (const bool solicited : {true, false}) {
    events_ = 0;
    Cq cq(4, &CqTest::count, &events_);
    push(cq, 1);
    push(cq, 2, solicited, solicited ? WcStatus::kSuccess : WcStatus::kWrFlushErr);
    push(cq, 3);
    cq.arm(Arm::kSolicited);
    EXPECT_EQ(events_, 1) << "it is the second in the queue";
  }
}

// "Any" that was asked for before is still asked for.
TEST_F(CqTest, SolicitedAfterAnyLooksForAny) {
  Cq cq(4, &CqTest::count, &events_);
  cq.arm(Arm::kAny);
  cq.arm(Arm::kSolicited);
  push(cq, 1);
  EXPECT_EQ(events_, 1);
}

TEST_F(CqTest, ArmedForSolicited) {
  Cq cq(8, &CqTest::count, &events_);
  cq.arm(Arm::kSolicited);
  push(cq, 1);
  EXPECT_EQ(events_, 0);
  push(cq, 2, true);
  EXPECT_EQ(events_, 1);
  poll(cq, 8);
  cq.arm(Arm::kSolicited);
  push(cq, 3, false, WcStatus::kWrFlushErr);
  EXPECT_EQ(events_, 2) << "an error counts as solicited";
}

TEST_F(CqTest, AnyIsNotNarrowedBySolicitedAndSolicitedIsWidenedByAny) {
  Cq cq(8, &CqTest::count, &events_);
  cq.arm(Arm::kAny);
  cq.arm(Arm::kSolicited);
  push(cq, 1);
  EXPECT_EQ(events_, 1);
  poll(cq, 8);
  cq.arm(Arm::kSolicited);
  cq.arm(Arm::kAny);
  push(cq, 2);
  EXPECT_EQ(events_, 2);
}

TEST_F(CqTest, CountsArmedQueuesForTheNic) {
  std::atomic<uint32_t> armed{0};
  {
    Cq one(4, nullptr, nullptr), two(4, nullptr, nullptr);
    one.armed_total = two.armed_total = &armed;
    one.arm(Arm::kSolicited);
    one.arm(Arm::kAny);
    EXPECT_EQ(armed, 1u) << "a queue counts once";
    two.arm(Arm::kSolicited);
    EXPECT_EQ(armed, 2u);
    push(one, 1);
    EXPECT_EQ(armed, 1u);
    push(two, 1);
    EXPECT_EQ(armed, 1u) << "not what it was armed for";
  }
  EXPECT_EQ(armed, 0u) << "destroyed queues are not armed";
}

TEST_F(CqTest, AnOverflowRaisesNoEvent) {
  Cq cq(1, &CqTest::count, &events_);
  push(cq, 1);
  cq.arm(Arm::kSolicited);
  push(cq, 2, true);
  EXPECT_EQ(events_, 0);
}

TEST_F(CqTest, ResizeKeepsOrderWhereverTheRingStands) {
  for (uint64_t turned = 0; turned < 5; ++turned) {
    for (uint64_t queued = 0; queued <= 5; ++queued) {
      for (uint32_t entries = 0; entries <= 9; ++entries) {
        Cq cq(5, nullptr, nullptr);
        for (uint64_t i = 0; i < turned; ++i) {
          push(cq, 100 + i);
          poll(cq, 1);
        }
        Ids expected;
        for (uint64_t i = 0; i < queued; ++i) {
          push(cq, i);
          expected.push_back(i);
        }
        const bool fits = entries >= 1 && entries >= queued;
        ASSERT_EQ(cq.resize(entries), fits ? 0 : EINVAL) << queued << " into " << entries;
        ASSERT_EQ(cq.entries(), fits ? entries : 5u);
        for (uint64_t i = queued; i < cq.entries(); ++i) {
          ASSERT_TRUE(push(cq, i));
          expected.push_back(i);
        }
        ASSERT_FALSE(push(cq, 99)) << "the new size is exact";
        ASSERT_EQ(poll(cq, 20), expected);
      }
    }
  }
}

TEST_F(CqTest, PollingFreesSendQueueSlots) {
  Cq cq(4, nullptr, nullptr);
  std::atomic<uint32_t> first{0}, second{10};
  cq.push(completion(1), false, &first, 3);
  cq.push(completion(2), false, nullptr, 0);
  cq.push(completion(3), false, &second, 1);
  cq.push(completion(4), false, &first, 5);
  EXPECT_EQ(first, 0u) << "not before it is polled";
  EXPECT_EQ(cq.resize(6), 0);
  poll(cq, 2);
  EXPECT_EQ(first, 3u);
  EXPECT_EQ(second, 10u);
  poll(cq, 2);
  EXPECT_EQ(first, 8u);
  EXPECT_EQ(second, 11u);
}

TEST_F(CqTest, RemovingAQpTakesItsCompletionsAndNoOthers) {
  for (uint64_t turned = 0; turned < 6; ++turned) {
    Cq cq(6, nullptr, nullptr);
    for (uint64_t i = 0; i < turned; ++i) {
      push(cq, 100 + i);
      poll(cq, 1);
    }
    std::atomic<uint32_t> gone{0}, stays{0};
    for (uint64_t i = 0; i < 6; ++i) {
      const bool mine = i % 3 != 1;
      cq.push(completion(i, mine ? 7 : 8), false, mine ? &gone : &stays, 1);
    }
    cq.remove_qp(9);
    cq.remove_qp(7);
    EXPECT_TRUE(push(cq, 50)) << "there is room again";
    EXPECT_EQ(poll(cq, 9), (Ids{1, 4, 50}));
    EXPECT_EQ(gone, 0u) << "its slots are freed for nobody";
    EXPECT_EQ(stays, 2u);
    push(cq, 60);
    cq.remove_qp(1);
    EXPECT_TRUE(cq.empty());
  }
}

TEST_F(CqTest, RandomAgainstADeque) {
  std::mt19937 random(7);
  const auto below = [&random](uint32_t n) { return random() % n; };
  Cq cq(16, nullptr, nullptr);
  std::deque<Completion> reference;
  uint64_t next = 0;
  for (int step = 0; step < 20'000; ++step) {
    const uint32_t what = below(100);
    if (what < 55 && reference.size() < cq.entries()) {
      reference.push_back(completion(next++, below(4)));
      ASSERT_TRUE(cq.push(reference.back(), false, nullptr, 0));
    } else if (what < 95) {
      Completion out[5];
      const int max = static_cast<int>(below(6));
      const int taken = cq.poll(out, max);
      ASSERT_EQ(static_cast<size_t>(taken), std::min<size_t>(reference.size(), max));
      for (int i = 0; i < taken; ++i) {
        ASSERT_EQ(out[i].wr_id, reference.front().wr_id);
        reference.pop_front();
      }
    } else if (what < 98) {
      const uint32_t entries = 1 + below(32);
      ASSERT_EQ(cq.resize(entries), entries < reference.size() ? EINVAL : 0);
    } else {
      const uint32_t qpn = below(4);
      cq.remove_qp(qpn);
      std::erase_if(reference, [qpn](const Completion& c) { return c.qpn == qpn; });
    }
    ASSERT_EQ(cq.empty(), reference.empty());
  }
}

// A completion and an arming can't miss each other: whoever arms, polls once more and finds nothing
// will get an event for what comes.
TEST_F(CqTest, Rule34_NoWakeUpIsLost) {
  static std::atomic<uint32_t> raised;
  raised = 0;
  Cq cq(
      4, [](void*) { raised.fetch_add(1); }, nullptr);
  constexpr uint64_t kCount = 20'000;
  std::atomic<bool> stop{false};
  std::thread producer([&cq, &stop] {
    for (uint64_t i = 0; i < kCount && !stop; ++i) {
      cq.push(completion(i), false, nullptr, 0);
      while (!cq.empty() && !stop) std::this_thread::yield();
    }
  });
  uint64_t seen = 0;
  uint32_t used = 0;
  while (seen < kCount && !HasFailure()) {
    used = raised.load();
    cq.arm(Arm::kAny);
    Completion out;
    if (cq.poll(&out, 1) == 1) {
      EXPECT_EQ(out.wr_id, seen++);
      continue;
    }
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (raised.load() == used && !HasFailure()) {
      if (std::chrono::steady_clock::now() > patience)
        ADD_FAILURE() << "slept through completion " << seen;
      std::this_thread::yield();
    }
  }
  stop = true;
  producer.join();
}

}  // namespace
}  // namespace hostnic::driver
