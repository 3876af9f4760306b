// SPDX-License-Identifier: BSD-3-Clause
// Messages of one packet, many of them at a time.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/sim/pair.h"

namespace hostnic::sim {
namespace {

constexpr uint32_t kMtu = 4096;

struct Burst {
  SendOp op;
  uint32_t length_bytes;
  bool inlined;
};

class SinglePacketSends : public testing::TestWithParam<Burst> {};

// Rows of equal messages between others, so that each row ends for another reason.
TEST_P(SinglePacketSends, ArriveWhole) {
  const Burst burst = GetParam();
  QpSettings qp;
  qp.psn = 0xffffff - 20;  // it wraps
  Pair pair(qp);
  constexpr uint32_t kMessages = 60;
  std::vector<uint8_t> expected(Pair::kBytes, 0);
  std::memset(pair.remote.data(), 0, Pair::kBytes);
  for (uint32_t i = 0; i < kMessages; ++i)
    ASSERT_EQ(pair.post_receive(i, i * 2 * kMtu, 2 * kMtu), 0);
  uint32_t receives = 0;
  for (uint32_t i = 0; i < kMessages; ++i) {
    // Every seventh is of another length, every eleventh of another kind, every 13th of two SGEs.
    const uint32_t bytes = i % 7 == 6 ? burst.length_bytes + 1 : burst.length_bytes;
    const bool two = i % 13 == 12 && bytes > 1 && !burst.inlined;
    const SendOp op = i % 11 == 10 ? SendOp::kSendImm : burst.op;
    const uint64_t from = i * 4099, to = i * 2 * kMtu + (op == SendOp::kWrite ? 3 : 0);
    std::vector<Sge> sges = {pair.at(from, bytes)};
    if (two) sges = {pair.at(from, 1), pair.at(from + 1, bytes - 1)};
    driver::SendRequest request =
        Pair::request(op, i, sges[0], pair.remote.address(to), pair.rkey, i % 3 == 0);
    request.sges = sges;
    request.solicited = i % 2 == 0;
    request.inline_data = burst.inlined;
    const bool consumes = op != SendOp::kWrite;
    const uint64_t landed = consumes ? receives++ * 2 * kMtu : to;
    std::memcpy(expected.data() + landed, pair.local.data() + from, bytes);
    ASSERT_EQ(pair.near->post_send(request), 0) << i;
    if (burst.inlined) std::memset(pair.local.data() + from, 0xdd, bytes);  // it is ours again
  }
  const auto done = pair.sent(kMessages / 3);
  ASSERT_EQ(done.size(), kMessages / 3);
  for (const auto& c : done) EXPECT_EQ(c.status, WcStatus::kSuccess);
  pair.world.run_for(kMillisecond);
  EXPECT_EQ(pair.far->poll(*pair.far->recv_cq).size(), receives);
  EXPECT_EQ(std::memcmp(expected.data(), pair.remote.data(), Pair::kBytes), 0);
  EXPECT_EQ(pair.near_counter(Counter::retransmitted_packets), 0u);
  EXPECT_EQ(pair.near_counter(Counter::descriptors_discarded), 0u);
  pair.world.check_at_rest();
}
INSTANTIATE_TEST_SUITE_P(
    Sizes, SinglePacketSends,
    testing::Values(Burst{SendOp::kWrite, 1, false}, Burst{SendOp::kWrite, 64, false},
                    Burst{SendOp::kWrite, 255, false}, Burst{SendOp::kWrite, 256, false},
                    Burst{SendOp::kWrite, 1500, false}, Burst{SendOp::kWrite, kMtu - 1, false},
                    Burst{SendOp::kSend, 7, false}, Burst{SendOp::kSend, 64, false},
                    Burst{SendOp::kSend, 4000, false}, Burst{SendOp::kWrite, 64, true},
                    Burst{SendOp::kSend, 200, true}, Burst{SendOp::kWrite, 0, false}));

// The first that fails in a row is named; those before it have arrived, those behind it have not.
TEST(SinglePacketSendsFail, OfARowOnlyTheOneWithTheBadKey) {
  Pair pair;
  std::memset(pair.remote.data(), 0, 16 * 64);
  for (uint32_t i = 0; i < 16; ++i) {
    const Sge sge{pair.local.address(i * 64), 64, i == 9 ? pair.lkey + 1 : pair.lkey};
    ASSERT_EQ(pair.near->post_send(
                  Pair::request(SendOp::kWrite, i, sge, pair.remote.address(i * 64), pair.rkey)),
              0);
  }
  const auto done = pair.sent(16);
  ASSERT_EQ(done.size(), 16u);
  for (uint32_t i = 0; i < 16; ++i)
    EXPECT_EQ(done[i].status, i < 9    ? WcStatus::kSuccess
                              : i == 9 ? WcStatus::kLocProtErr
                                       : WcStatus::kWrFlushErr);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 9 * 64));
  EXPECT_EQ(pair.remote.data()[9 * 64], 0);
}

}  // namespace
}  // namespace hostnic::sim
