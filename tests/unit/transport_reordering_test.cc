// The sender's view of a network that reorders: how late is lost, and what is still on its way.
#include <gtest/gtest.h>

#include "protocol/transport/send_tracker.h"

namespace hostnic {
namespace {

constexpr uint64_t kRtt = 100'000;

PsnBits bits(Psn from, uint32_t count) {
  PsnBits result;
  for (uint32_t i = 0; i < count; ++i) result.set(from + i);
  return result;
}

class Reordering : public testing::TestWithParam<uint32_t> {
 protected:
  Psn at(uint32_t offset) const { return Psn(GetParam()) + offset; }
  void start(uint32_t sent) {
    tracker_.reset(at(0), 1024);
    tracker_.on_first_send(sent, 0);
  }
  // How long after its sending a front is lost that one later packet has overtaken.
  uint64_t patience_ns() {
    tracker_.on_news(at(0), bits(at(1), 1));
    return tracker_.reorder_deadline_ns(kRtt);
  }
  SendTracker tracker_;
};
INSTANTIATE_TEST_SUITE_P(SendTracker, Reordering, testing::Values(1000u, 0xfffffcu),
                         [](const auto& info) { return "From" + std::to_string(info.param); });

TEST_P(Reordering, Rule24_SpuriousResendsMakePatient) {
  start(4);
  EXPECT_EQ(patience_ns(), kRtt + kRtt / 4);
  tracker_.on_spurious_resend();
  EXPECT_EQ(patience_ns(), kRtt + kRtt / 2);
  EXPECT_EQ(tracker_.detect_losses(kRtt + kRtt / 2 - 1, kRtt), 0u);
  EXPECT_EQ(tracker_.detect_losses(kRtt + kRtt / 2, kRtt), 1u);
}

TEST_P(Reordering, Rule24_PatienceHasABoundAndWearsOff) {
  start(4);
  for (int i = 0; i < 20; ++i) tracker_.on_spurious_resend();
  EXPECT_EQ(patience_ns(), 5 * kRtt);
  uint64_t before_ns = 5 * kRtt;
  for (int i = 0; i < 60 * 1024; ++i) {
    const uint64_t patience = patience_ns();
    ASSERT_LE(patience, before_ns);
    before_ns = patience;
  }
  EXPECT_EQ(before_ns, kRtt + kRtt / 4);
}

TEST_P(Reordering, Rule27_WhatIsSettledIsNotOnItsWay) {
  start(100);
  EXPECT_EQ(tracker_.on_its_way(), 100u);
  tracker_.on_news(at(10), bits(at(12), 20));
  EXPECT_EQ(tracker_.on_its_way(), 70u);
  EXPECT_EQ(tracker_.detect_losses(0, 0), 2u);
  EXPECT_EQ(tracker_.on_its_way(), 68u);
  tracker_.on_resend(at(10), 2, 0);
  EXPECT_EQ(tracker_.on_its_way(), 70u);
  tracker_.on_news(at(100), {});
  EXPECT_EQ(tracker_.on_its_way(), 0u);
}

// A front that is acknowledged and repeated all the same counts once.
TEST_P(Reordering, Rule27_AnAcknowledgedFrontIsNotCountedTwice) {
  start(3);
  tracker_.on_news(at(0), bits(at(0), 3));
  tracker_.mark_all_lost();
  EXPECT_EQ(tracker_.on_its_way(), 0u);
}

}  // namespace
}  // namespace hostnic
