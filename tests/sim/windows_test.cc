// SPDX-License-Identifier: BSD-3-Clause
// Memory windows: bound, used, invalidated from both sides, and refused (docs/verbs.md, "Memory
// windows"). The far host owns the windows, the near one uses them.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/sim/pair.h"

namespace hostnic::sim {
namespace {

using driver::Completion;
using driver::SendRequest;
constexpr uint32_t kMtu = 4096;
constexpr uint32_t kBindable = kAllAccess | kAccessMwBind;
constexpr uint32_t kAllRemote = kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic;

class Windows : public testing::Test {
 protected:
  explicit Windows(const QpSettings& qp = {}) : pair(qp, {}, kBindable) {}

  uint32_t make_window(WindowType type, uint32_t pd = 1) {
    const auto key = pair.far->host->driver().create_window(pd, type);
    EXPECT_TRUE(key.has_value());
    return key.has_value() ? *key : 0;
  }
  // The far side's request to bind [offset, offset + bytes) of its memory.
  SendRequest bind_request(uint64_t wr_id, uint32_t key, uint64_t offset, uint64_t bytes,
                           uint32_t access = kAllRemote) const {
    SendRequest request;
    request.op = SendOp::kBindWindow;
    request.wr_id = wr_id;
    request.signalled = true;
    request.rkey = key;
    request.remote_va = pair.remote.address(offset);
    request.binding = {bytes, pair.rkey, access};
    return request;
  }
  static SendRequest invalidate_request(uint64_t wr_id, uint32_t key) {
    SendRequest request;
    request.op = SendOp::kLocalInvalidate;
    request.wr_id = wr_id;
    request.signalled = true;
    request.rkey = key;
    return request;
  }
  std::vector<Completion> far_sent(size_t count) {
    return pair.take(*pair.far, *pair.far->send_cq, count);
  }
  // Posts at the far side, and says what became of it.
  WcStatus run_at_far(const SendRequest& request) {
    EXPECT_EQ(pair.far->post_send(request), 0);
    const auto done = far_sent(1);
    EXPECT_EQ(done.size(), 1u);
    return done.empty() ? WcStatus::kGeneralErr : done[0].status;
  }
  WcStatus bind(uint32_t key, uint64_t offset, uint64_t bytes, uint32_t access = kAllRemote) {
    return run_at_far(bind_request(1, key, offset, bytes, access));
  }
  WcStatus write(uint32_t key, uint64_t offset, uint32_t bytes) {
    pair.post_to(SendOp::kWrite, 7, pair.at(0, bytes), pair.remote.address(offset), key);
    return pair.status_of_one();
  }
  int send_inv(uint64_t wr_id, uint32_t key, uint32_t bytes) {
    const Sge sge = pair.at(0, bytes);
    SendRequest request = Pair::request(SendOp::kSendInv, wr_id, sge, 0, 0);
    request.imm_data = key;
    return pair.near->post_send(request);
  }
  bool region_is_held() { return pair.world.mrs().has_windows(pair.rkey, 2); }

  Pair pair;
};

class EveryWindow : public Windows, public testing::WithParamInterface<WindowType> {};

TEST_P(EveryWindow, WritesReadsAndAtomicsGoThroughIt) {
  const uint32_t key = make_window(GetParam());
  ASSERT_NE(key & kWindowKeyBit, 0u);
  ASSERT_EQ(bind(key, 8192, 64 * 1024), WcStatus::kSuccess);
  EXPECT_TRUE(region_is_held());
  EXPECT_EQ(write(key, 8192, 5 * kMtu + 3), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 8192, 5 * kMtu + 3));
  pair.post_to(SendOp::kRead, 2, pair.at(512 * 1024, 3 * kMtu), pair.remote.address(8192), key);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 512 * 1024, pair.remote, 8192, 3 * kMtu));
  pair.post_to(SendOp::kFetchAdd, 3, pair.at(0, 8), pair.remote.address(8192 + 64), key);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
}

TEST_P(EveryWindow, ItsBoundsCountNotTheRegions) {
  const uint32_t key = make_window(GetParam());
  ASSERT_EQ(bind(key, 8192, kMtu), WcStatus::kSuccess);
  EXPECT_EQ(write(key, 8192, kMtu), WcStatus::kSuccess);
  EXPECT_EQ(write(key, 8192 + 1, kMtu), WcStatus::kRemAccessErr);
}

TEST_P(EveryWindow, ItsRightsCountNotTheRegions) {
  const uint32_t key = make_window(GetParam());
  ASSERT_EQ(bind(key, 0, kMtu, kAccessRemoteRead), WcStatus::kSuccess);
  pair.post_to(SendOp::kRead, 2, pair.at(0, 64), pair.remote.address(), key);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_EQ(write(key, 0, 64), WcStatus::kRemAccessErr);
}

TEST_P(EveryWindow, UnboundItIsRefused) {
  const uint32_t key = make_window(GetParam());
  EXPECT_EQ(write(key, 0, 64), WcStatus::kRemAccessErr);
  EXPECT_FALSE(region_is_held());
}

TEST_P(EveryWindow, DestroyedItLetsGoOfItsRegion) {
  const uint32_t key = make_window(GetParam());
  ASSERT_EQ(bind(key, 0, kMtu), WcStatus::kSuccess);
  EXPECT_TRUE(region_is_held());
  EXPECT_EQ(pair.far->host->driver().destroy_window(key), 0);
  EXPECT_FALSE(region_is_held());
  EXPECT_EQ(pair.far->host->driver().destroy_window(key), EINVAL) << "once";
  EXPECT_EQ(write(key, 0, 64), WcStatus::kRemAccessErr);
}

TEST_P(EveryWindow, ZeroBasedItsAddressesAreOffsets) {
  const uint32_t key = make_window(GetParam());
  ASSERT_EQ(bind(key, 8192, kMtu, kAllRemote | kAccessZeroBased), WcStatus::kSuccess);
  pair.post_to(SendOp::kWrite, 1, pair.at(0, 100), 40, key);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 8192 + 40, 100));
  pair.post_to(SendOp::kRead, 2, pair.at(512 * 1024, 100), 40, key);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 512 * 1024, pair.remote, 8192 + 40, 100));
  pair.post_to(SendOp::kWrite, 3, pair.at(0, 100), kMtu - 99, key);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kRemAccessErr);
}

TEST_P(EveryWindow, ABadBindEndsTheQueuePairAndBindsNothing) {
  const uint32_t key = make_window(GetParam());
  SendRequest request = bind_request(1, key, Pair::kBytes - 64, 65);
  ASSERT_EQ(pair.far->post_send(request), 0);
  ASSERT_EQ(pair.far->post_send(bind_request(2, key, 0, 64)), 0);
  const auto done = far_sent(2);
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].status, WcStatus::kMwBindErr);
  EXPECT_EQ(done[0].wr_id, 1u);
  EXPECT_EQ(done[1].status, WcStatus::kWrFlushErr);
  EXPECT_EQ(pair.far->state(), QpState::kErr);
  EXPECT_FALSE(region_is_held());
}

INSTANTIATE_TEST_SUITE_P(Windows, EveryWindow, testing::Values(WindowType::k1, WindowType::k2));

TEST_F(Windows, BindsThatAreRefused) {
  const uint32_t plain = pair.far->host->add_mr(pair.remote, kAllAccess);
  const uint32_t read_only = pair.far->host->add_mr(pair.remote, kAccessMwBind);
  const uint32_t other_domain =
      pair.far->host->add_mr(pair.remote, kBindable, Reach::kMapped, /*pd=*/2);
  const uint32_t foreign = pair.near->host->add_mr(pair.remote, kBindable);
  const auto refused = [&](uint32_t window_pd, uint32_t mr_key, uint32_t access) {
    SendRequest request = bind_request(1, make_window(WindowType::k2, window_pd), 0, 64, access);
    request.binding.mr_key = mr_key;
    const WcStatus status = run_at_far(request);
    // Anew, for the next.
    for (Endpoint* end : {pair.near.get(), pair.far.get()})
      EXPECT_EQ(end->host->driver().destroy_qp(end->qp), 0);
    pair.near = pair.world.make_endpoint(0);
    pair.far = pair.world.make_endpoint(1);
    pair.world.connect(*pair.near, *pair.far);
    return status == WcStatus::kMwBindErr;
  };
  EXPECT_TRUE(refused(1, plain, kAccessRemoteRead)) << "no MW_BIND right";
  EXPECT_TRUE(refused(1, read_only, kAccessRemoteWrite)) << "the region is read-only";
  EXPECT_FALSE(refused(1, read_only, kAccessRemoteRead));
  EXPECT_TRUE(refused(1, other_domain, kAccessRemoteRead));
  EXPECT_TRUE(refused(2, other_domain, kAccessRemoteRead)) << "not the queue pair's";
  EXPECT_TRUE(refused(1, foreign, kAccessRemoteRead)) << "another client's";
  EXPECT_TRUE(refused(1, 0, kAccessRemoteRead));
  EXPECT_TRUE(refused(1, pair.rkey, kAccessLocalWrite)) << "no right of a window";
}

TEST_F(Windows, Type1GetsANewKeyWithEachBind) {
  const uint32_t first = make_window(WindowType::k1);
  const uint32_t second = (first & ~kWindowTagMask) | ((first + 77) & kWindowTagMask);
  ASSERT_EQ(bind(first, 0, kMtu), WcStatus::kSuccess);
  ASSERT_EQ(bind(second, 2 * kMtu, kMtu), WcStatus::kSuccess) << "bound anew, straight away";
  EXPECT_EQ(write(second, 2 * kMtu, 64), WcStatus::kSuccess);
  EXPECT_EQ(write(first, 0, 64), WcStatus::kRemAccessErr);
}

TEST_F(Windows, Type1IsUnboundByLengthZero) {
  const uint32_t key = make_window(WindowType::k1);
  ASSERT_EQ(bind(key, 0, kMtu), WcStatus::kSuccess);
  SendRequest request = bind_request(1, key ^ 1, 0, 0, 0);
  request.remote_va = request.binding.mr_key = 0;
  EXPECT_EQ(run_at_far(request), WcStatus::kSuccess);
  EXPECT_FALSE(region_is_held());
  EXPECT_EQ(write(key ^ 1, 0, 64), WcStatus::kRemAccessErr);
}

TEST_F(Windows, Type2MustBeInvalidatedBeforeItIsBoundAgain) {
  const uint32_t key = make_window(WindowType::k2);
  ASSERT_EQ(bind(key, 0, kMtu), WcStatus::kSuccess);
  EXPECT_EQ(run_at_far(invalidate_request(2, key)), WcStatus::kSuccess);
  EXPECT_FALSE(region_is_held());
  const uint32_t next = (key & ~kWindowUserMask) | ((key + 1) & kWindowUserMask);
  ASSERT_EQ(bind(next, kMtu, kMtu), WcStatus::kSuccess);
  EXPECT_EQ(write(next, kMtu, 64), WcStatus::kSuccess);
  EXPECT_EQ(bind(next, 0, kMtu), WcStatus::kMwBindErr) << "it is bound";
}

TEST_F(Windows, Type2KeysOnlyTheirLowByteIsTheProgramsOwn) {
  const uint32_t key = make_window(WindowType::k2);
  EXPECT_EQ(bind(key ^ 0x100, 0, kMtu), WcStatus::kMwBindErr);
}

TEST_F(Windows, Type2IsItsQueuePairsAlone) {
  const uint32_t key = make_window(WindowType::k2), shared = make_window(WindowType::k1);
  ASSERT_EQ(bind(key, 0, kMtu), WcStatus::kSuccess);
  ASSERT_EQ(bind(shared, 0, kMtu), WcStatus::kSuccess);
  auto near = pair.world.make_endpoint(0), far = pair.world.make_endpoint(1);
  pair.world.connect(*near, *far);
  const auto through = [&](uint32_t rkey) {
    const Sge sge = pair.at(0, 64);
    EXPECT_EQ(near->post_send(Pair::request(SendOp::kWrite, 1, sge, pair.remote.address(), rkey)),
              0);
    const auto done = pair.take(*near, *near->send_cq, 1);
    return done.empty() ? WcStatus::kGeneralErr : done[0].status;
  };
  EXPECT_EQ(through(shared), WcStatus::kSuccess) << "type 1 is everybody's";
  EXPECT_EQ(through(key), WcStatus::kRemAccessErr);
  EXPECT_EQ(write(key, 0, 64), WcStatus::kSuccess);
}

TEST_F(Windows, Type2GoesWithItsQueuePair) {
  const uint32_t key = make_window(WindowType::k2);
  ASSERT_EQ(bind(key, 0, kMtu), WcStatus::kSuccess);
  EXPECT_TRUE(region_is_held());
  ASSERT_EQ(pair.far->host->driver().destroy_qp(pair.far->qp), 0);
  EXPECT_FALSE(region_is_held());
  pair.far = pair.world.make_endpoint(1);
}

TEST_F(Windows, InvalidatingWhatIsNoneIsAnError) {
  const uint32_t type1 = make_window(WindowType::k1);
  ASSERT_EQ(bind(type1, 0, kMtu), WcStatus::kSuccess);
  EXPECT_EQ(run_at_far(invalidate_request(2, type1)), WcStatus::kMwBindErr);
  EXPECT_TRUE(region_is_held());
}

TEST_F(Windows, OrderOnTheSendQueue) {
  // The region's owner writes, binds, tells the peer and invalidates, all posted at once.
  const uint32_t key = make_window(WindowType::k2);
  const uint32_t near_key = pair.near->host->add_mr(pair.local);
  const Sge sge{pair.remote.address(), 64 * 1024, pair.rkey};
  ASSERT_EQ(pair.far->post_send(Pair::request(SendOp::kWrite, 1, sge,
                                              pair.local.address(256 * 1024), near_key,
                                              /*signalled=*/false)),
            0);
  ASSERT_EQ(pair.far->post_send(bind_request(2, key, 0, kMtu)), 0);
  ASSERT_EQ(pair.far->post_send(
                Pair::request(SendOp::kWrite, 3, sge, pair.local.address(256 * 1024), near_key)),
            0);
  ASSERT_EQ(pair.far->post_send(invalidate_request(4, key)), 0);
  const auto done = far_sent(3);
  ASSERT_EQ(done.size(), 3u);
  const driver::WcOpcode opcodes[] = {driver::WcOpcode::kBindMw, driver::WcOpcode::kRdmaWrite,
                                      driver::WcOpcode::kLocalInv};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(done[i].wr_id, i + 2);
    EXPECT_EQ(done[i].status, WcStatus::kSuccess);
    EXPECT_EQ(done[i].opcode, opcodes[i]);
  }
  EXPECT_FALSE(region_is_held());
  EXPECT_EQ(write(key, 0, 64), WcStatus::kRemAccessErr);
}

TEST_F(Windows, ASendInvalidatesAtItsReceiver) {
  const uint32_t key = make_window(WindowType::k2);
  ASSERT_EQ(bind(key, 0, 256 * 1024), WcStatus::kSuccess);
  pair.post_receive(5, 512 * 1024, 64 * 1024);
  pair.post_to(SendOp::kWrite, 1, pair.at(0, 16 * kMtu), pair.remote.address(), key);
  ASSERT_EQ(send_inv(2, key, 3 * kMtu + 5), 0);
  const auto done = pair.sent(2);
  ASSERT_EQ(done.size(), 2u);
  for (const Completion& c : done) EXPECT_EQ(c.status, WcStatus::kSuccess);
  const auto received = pair.received(1);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].status, WcStatus::kSuccess);
  EXPECT_EQ(received[0].flags, uint32_t{driver::kWcWithInv});
  EXPECT_EQ(received[0].imm_data, key);
  EXPECT_EQ(received[0].byte_len, 3 * kMtu + 5);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 16 * kMtu));
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 512 * 1024, 3 * kMtu + 5));
  EXPECT_FALSE(region_is_held());
  EXPECT_EQ(write(key, 0, 64), WcStatus::kRemAccessErr);
}

TEST_F(Windows, ASendThatInvalidatesWhatIsNoneIsRefused) {
  pair.post_receive(5, 0, kMtu);
  ASSERT_EQ(send_inv(1, pair.rkey, 64), 0) << "a region is no window";
  EXPECT_EQ(pair.status_of_one(), WcStatus::kRemAccessErr);
  const auto received = pair.received(1);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].status, WcStatus::kLocAccessErr);
  EXPECT_EQ(pair.far->state(), QpState::kErr);
}

// The invalidation executes when all before it has arrived, however often packets are lost: the
// WRITEs before it are whole, and its key is dead when the receive completes.
TEST_F(Windows, InvalidationsUnderLoss) {
  pair.world.impair(1, "rx drop 5%", 7);
  pair.world.impair(0, "rx drop 5%", 8);
  uint32_t key = make_window(WindowType::k2);
  for (uint32_t round = 0; round < 50; ++round) {
    ASSERT_EQ(bind(key, 0, 256 * 1024), WcStatus::kSuccess) << round;
    pair.local.data()[round] = static_cast<uint8_t>(~pair.local.data()[round]);
    pair.post_receive(round, 512 * 1024, 64 * 1024);
    pair.post_to(SendOp::kWrite, 1, pair.at(0, 24 * kMtu), pair.remote.address(), key,
                 /*signalled=*/false);
    ASSERT_EQ(send_inv(2, key, 2 * kMtu), 0);
    const auto received = pair.received(1);
    ASSERT_EQ(received.size(), 1u) << round;
    EXPECT_EQ(received[0].flags, uint32_t{driver::kWcWithInv});
    EXPECT_EQ(received[0].imm_data, key);
    EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 24 * kMtu)) << round;
    EXPECT_FALSE(region_is_held());
    ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess) << round;
    key = (key & ~kWindowUserMask) | ((key + 1) & kWindowUserMask);
  }
  EXPECT_EQ(write(key - 1, 0, 64), WcStatus::kRemAccessErr);
}

QpSettings unreliable() {
  QpSettings settings;
  settings.type = QpType::kUc;
  return settings;
}
class UcWindows : public Windows {
 protected:
  UcWindows() : Windows(unreliable()) {}
};

TEST_F(UcWindows, WritesGoThroughAndStopAtInvalidation) {
  const uint32_t key = make_window(WindowType::k2);
  ASSERT_EQ(bind(key, 0, 64 * 1024), WcStatus::kSuccess);
  EXPECT_EQ(write(key, 0, 3 * kMtu), WcStatus::kSuccess);
  pair.world.run_for(kMillisecond);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 3 * kMtu));
  EXPECT_EQ(pair.far_counter(Counter::uc_access_refused), 0u);
  ASSERT_EQ(run_at_far(invalidate_request(2, key)), WcStatus::kSuccess);
  EXPECT_EQ(write(key, 0, 64), WcStatus::kSuccess);
  pair.world.run_for(kMillisecond);
  EXPECT_EQ(pair.far_counter(Counter::uc_access_refused), 1u);
  EXPECT_EQ(send_inv(1, key, 64), EINVAL) << "RC's alone";
}

TEST(WindowLimits, AUserHasSoManyAndNoMore) {
  WorldSettings settings;
  settings.user_windows = 3;
  Pair pair({}, settings, kBindable);
  driver::Driver& driver = pair.far->host->driver();
  std::vector<uint32_t> keys;
  for (int i = 0; i < 3; ++i) {
    const auto key = driver.create_window(1, WindowType::k1);
    ASSERT_TRUE(key.has_value());
    keys.push_back(*key);
  }
  const auto refused = driver.create_window(1, WindowType::k1);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error(), ENOMEM);
  EXPECT_EQ(driver.destroy_window(keys[0]), 0);
  EXPECT_TRUE(driver.create_window(1, WindowType::k1).has_value());
  EXPECT_FALSE(driver.create_window(1, WindowType::k1).has_value());
}

}  // namespace
}  // namespace hostnic::sim
