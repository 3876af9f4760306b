// SPDX-License-Identifier: BSD-3-Clause
// Receiving under the whole-message policy: all packets of a message in one attempt, or none
// (docs/transport.md rule 30).
#include "protocol/transport/message_arrivals.h"

#include <gtest/gtest.h>

namespace hostnic {
namespace {

class Rule30_MessageArrivals : public testing::Test {
 protected:
  static constexpr uint32_t kFirst = 0xfffffe;  // over the wrap
  Rule30_MessageArrivals() { arrivals_.reset(Psn(kFirst), 32); }
  static Psn at(uint32_t offset) { return Psn(kFirst) + offset; }
  // Packet `offset` of a message that covers [from, from + count).
  void note(uint32_t offset, uint32_t from, uint32_t count, uint8_t attempt = 0) {
    arrivals_.note(at(offset), offset != from, offset + 1 != from + count, attempt);
  }
  void note_all(uint32_t from, uint32_t count, uint8_t attempt = 0) {
    for (uint32_t i = 0; i < count; ++i) note(from + i, from, count, attempt);
  }
  uint64_t sack(uint32_t end) {
    std::array<uint64_t, kBitmapWords> words{};
    return arrivals_.sack_words(at(end), words) == 0 ? 0 : words[0];
  }
  MessageArrivals arrivals_;
};

TEST_F(Rule30_MessageArrivals, OnlyWholeMessagesArePromised) {
  note(0, 0, 3);
  note(2, 0, 3);
  EXPECT_EQ(arrivals_.promised(), at(0));
  note(1, 0, 3);
  EXPECT_EQ(arrivals_.promised(), at(3)) << "in any order";
}

TEST_F(Rule30_MessageArrivals, PacketsOfTwoAttemptsDoNotMakeAMessage) {
  note(0, 0, 3);
  note(1, 0, 3);
  note(2, 0, 3, 1);
  EXPECT_EQ(arrivals_.promised(), at(0));
  note(0, 0, 3, 1);
  EXPECT_EQ(arrivals_.promised(), at(0));
  note(1, 0, 3, 1);
  EXPECT_EQ(arrivals_.promised(), at(3));
}

TEST_F(Rule30_MessageArrivals, ALaterCompleteMessageIsAdvertised) {
  note(0, 0, 3);   // 1 and 2 are missing
  note_all(3, 2);  // complete
  note(5, 5, 2);   // 6 is missing
  EXPECT_EQ(sack(6), 0b11000u);
  note_all(0, 3, 1);
  EXPECT_EQ(arrivals_.promised(), at(5));
  EXPECT_EQ(sack(6), 0u);
}

TEST_F(Rule30_MessageArrivals, AMessageWhoseEndIsMissingDoesNotSwallowTheNext) {
  note(0, 0, 2);
  note_all(2, 2);
  EXPECT_EQ(sack(4), 0b1100u);
}

TEST_F(Rule30_MessageArrivals, LongMessagesArePromisedInHalfWindows) {
  for (uint32_t i = 0; i < 15; ++i) note(i, 0, 100);
  EXPECT_EQ(arrivals_.promised(), at(0));
  note(15, 0, 100);
  EXPECT_EQ(arrivals_.promised(), at(16));
  for (uint32_t i = 16; i < 100; ++i) note(i, 0, 100);
  EXPECT_EQ(arrivals_.promised(), at(100));
}

TEST_F(Rule30_MessageArrivals, ANakPromisesWhatIsBeforeIt) {
  note(1, 0, 4);
  arrivals_.promise(at(4));
  EXPECT_EQ(arrivals_.promised(), at(4));
  note(0, 0, 4);    // old
  note(40, 40, 1);  // beyond the window
  EXPECT_EQ(arrivals_.promised(), at(4));
  note_all(4, 1);
  EXPECT_EQ(arrivals_.promised(), at(5));
}

}  // namespace
}  // namespace hostnic
