// SPDX-License-Identifier: BSD-3-Clause
// Memory whose pages come into the mirror after its registration (protocol/hostif/memory_region.h):
// nothing of a slice is touched before, what waits for it neither fails nor uses up retry_cnt, and
// what it waits for is wanted.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "tests/sim/roce_pair.h"

namespace hostnic::sim {
namespace {

constexpr uint32_t kPage = 4096;
constexpr auto kFilled = static_cast<uint8_t>(SliceState::kFilled);
constexpr auto kAside = static_cast<uint8_t>(SliceState::kAside);
constexpr auto kWanted = static_cast<uint8_t>(SliceState::kWanted);

// Registers memory late; what it contained lies aside, and other bytes are there, until a slice is
// filled. A slice is a page here.
class LateMemory {
 public:
  LateMemory(World& world, Host& host, Memory& memory, uint32_t access = kAllAccess)
      : world_(world),
        host_(host),
        memory_(memory),
        aside_(memory.data(), memory.data() + memory.size()),
        slices_(memory.size() / kPage, kAside) {
    std::fill_n(memory.data(), memory.size(), uint8_t{0xee});
    MrTable::Init init;
    init.client_id = host.index() + 1;
    init.pd = 1;
    init.access = access;
    init.va = init.iova = memory.address();
    init.length_bytes = memory.size();
    init.mem_fd = -1;  // nothing of it may be reached there
    for (size_t i = 0; i < slices_.size(); ++i)
      init.pieces.push_back({.va = memory.address(i * kPage),
                             .length_bytes = kPage,
                             .host = nullptr,
                             .space_id = host.index() + 1,
                             .space_offset = memory.address(i * kPage),
                             .late_host = reinterpret_cast<std::byte*>(memory.data() + i * kPage),
                             .slices = &slices_[i]});
    key = world.mrs().add(std::move(init));
  }

  void fill(size_t slice) {
    if (slices_[slice] == kFilled) return;
    std::copy_n(aside_.data() + slice * kPage, kPage, memory_.data() + slice * kPage);
    slices_[slice] = kFilled;
  }
  void fill_all() {
    for (size_t i = 0; i < slices_.size(); ++i) fill(i);
  }
  // Fills what is wanted, in any order, a slice every few microseconds, until that is all.
  void fill_wanted(Random& random, uint64_t limit_ns = 20 * kMillisecond) {
    for (const TimeNs end = world_.now() + limit_ns; world_.now() < end;) {
      world_.run_for(random.between(1, 20) * kMicrosecond);
      std::vector<size_t> wanted = slices_in(kWanted);
      if (!wanted.empty()) fill(wanted[random.below(wanted.size())]);
    }
  }
  std::vector<size_t> slices_in(uint8_t state) const {
    std::vector<size_t> slices;
    for (size_t i = 0; i < slices_.size(); ++i)
      if (slices_[i] == state) slices.push_back(i);
    return slices;
  }
  void take_effect() {
    const auto late = world_.mrs().late_pieces(key, host_.index() + 1);
    ASSERT_TRUE(late.has_value());
    world_.mrs().end_lateness(key, host_.index() + 1).take_effect();
  }

  uint32_t key = 0;

 private:
  World& world_;
  Host& host_;
  Memory& memory_;
  std::vector<uint8_t> aside_, slices_;
};

std::vector<size_t> range(size_t first, size_t count) {
  std::vector<size_t> slices(count);
  std::iota(slices.begin(), slices.end(), first);
  return slices;
}

class LateMemoryTest : public testing::TestWithParam<Transport> {
 protected:
  LateMemoryTest() : pair({}, GetParam() == Transport::kRoce ? roce() : WorldSettings{}) {
    for (size_t i = 0; i < Pair::kBytes; ++i)
      pair.remote.data()[i] = static_cast<uint8_t>(i * 5 + i / 241 + 9);
    before_local.assign(pair.local.data(), pair.local.data() + Pair::kBytes);
    before_remote.assign(pair.remote.data(), pair.remote.data() + Pair::kBytes);
  }
  // What the memory at the other end of `op` must contain.
  std::span<const uint8_t> moved(SendOp op, uint64_t offset, uint64_t bytes) {
    return std::span(op == SendOp::kRead ? before_remote : before_local).subspan(offset, bytes);
  }

  // Fills what is wanted, for some time. The standard's NIC finds the next slice when a timer has
  // fired; it gets the rest then.
  void fill_in_turn(LateMemory& near, LateMemory& far, uint64_t offset, uint64_t bytes) {
    for (int i = 0; i < 20; ++i) {
      far.fill_wanted(random, kMillisecond);
      near.fill_wanted(random, kMillisecond);
    }
    if (GetParam() != Transport::kRoce) return;
    for (uint64_t at = offset / kPage; at <= (offset + bytes) / kPage; ++at) {
      far.fill(at);
      near.fill(at);
    }
  }

  Pair pair;
  std::vector<uint8_t> before_local, before_remote;
  Random random{7};
};

// The first slice and the last are shared with what the operation leaves alone.
TEST_P(LateMemoryTest, EverythingWaitsForItsSlices) {
  constexpr uint64_t kBytes = 8 * kPage;
  LateMemory near(pair.world, *pair.near->host, pair.local);
  LateMemory far(pair.world, *pair.far->host, pair.remote);
  uint64_t offset = 100;
  for (const SendOp op : {SendOp::kWrite, SendOp::kRead, SendOp::kSend, SendOp::kWriteImm}) {
    SCOPED_TRACE(static_cast<int>(op));
    offset += 16 * kPage;
    const bool receives = op == SendOp::kSend || op == SendOp::kWriteImm;
    if (receives) pair.post_receive_with(5, {pair.remote.address(offset), kBytes, far.key});
    ASSERT_EQ(pair.post_to(op, 1, {pair.local.address(offset), kBytes, near.key},
                           pair.remote.address(offset), far.key),
              0);
    near.fill_wanted(random, 2 * kMillisecond);
    EXPECT_TRUE(pair.sent(1, kMillisecond).empty()) << "the far end's slices are not filled";
    fill_in_turn(near, far, offset, kBytes);
    ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess);
    if (receives) {
      ASSERT_EQ(pair.received(1, kMillisecond).size(), 1u);
    }
    const Memory& target = op == SendOp::kRead ? pair.local : pair.remote;
    EXPECT_TRUE(
        std::ranges::equal(moved(op, offset, kBytes), std::span(target.data() + offset, kBytes)));
    for (LateMemory* late : {&near, &far})
      EXPECT_EQ(late->slices_in(kWanted), std::vector<size_t>{});
  }
  // What lies around it is as it was, in both memories.
  near.fill_all();
  far.fill_all();
  for (uint64_t at = 0; at + 16 * kPage < offset; at += 16 * kPage) {
    EXPECT_TRUE(
        std::equal(pair.local.data() + at, pair.local.data() + at + 100, before_local.data() + at));
    EXPECT_TRUE(std::equal(pair.remote.data() + at, pair.remote.data() + at + 100,
                           before_remote.data() + at));
  }
  for (const auto& end : {pair.near.get(), pair.far.get()})
    EXPECT_GT(end->host->counter(Counter::unfilled_put_off), 0u);
  EXPECT_EQ(pair.far->host->counter(Counter::bytes_copied_mem_fd), 0u);
}

TEST_P(LateMemoryTest, WhatIsTouchedIsWantedAndNothingElse) {
  LateMemory far(pair.world, *pair.far->host, pair.remote);
  pair.post_to(SendOp::kWrite, 1, pair.at(0, 4 * kPage), pair.remote.address(10 * kPage + 5),
               far.key);
  EXPECT_TRUE(pair.sent(1, 5 * kMillisecond).empty());
  // The last packet waits for those before it; and the standard's NIC does not look at what comes
  // behind a packet that waits.
  const size_t seen = GetParam() == Transport::kRoce ? 2 : 4;
  EXPECT_EQ(far.slices_in(kWanted), range(10, seen));
  EXPECT_EQ(far.slices_in(kFilled), std::vector<size_t>{});
  far.fill_wanted(random);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 10 * kPage + 5, 4 * kPage));
  EXPECT_EQ(far.slices_in(kAside).size(), Pair::kBytes / kPage - 5);
}

// What a packet has written that comes again, since a part of it waits, is not remembered as newer
// than what is missing.
TEST_P(LateMemoryTest, NothingIsLeftOfWhatCameAgainUnderLoss) {
  LateMemory near(pair.world, *pair.near->host, pair.local);
  LateMemory far(pair.world, *pair.far->host, pair.remote);
  for (uint32_t host = 0; host < 2; ++host) pair.world.impair(host, "drop 20%", host);
  for (const SendOp op : {SendOp::kWrite, SendOp::kRead, SendOp::kSend}) {
    constexpr uint32_t kPart = 20 * kPage + 600;
    const uint64_t offset = 40 * kPage * static_cast<uint64_t>(op) + 100;
    const std::array parts = {Sge{pair.local.address(offset), kPart, near.key},
                              Sge{pair.local.address(offset + kPart), kPart, near.key}};
    const std::array receive = {Sge{pair.remote.address(offset), kPart + 50, far.key},
                                Sge{pair.remote.address(offset + kPart + 50), kPart, far.key}};
    if (op == SendOp::kSend) pair.far->post_recv({.wr_id = 5, .sges = receive});
    driver::SendRequest request =
        Pair::request(op, 1, parts[0], pair.remote.address(offset), far.key);
    request.sges = parts;
    ASSERT_EQ(pair.near->post_send(request), 0);
    fill_in_turn(near, far, offset, 2 * kPart + 50);
    ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess);
    const Memory& target = op == SendOp::kRead ? pair.local : pair.remote;
    EXPECT_TRUE(std::ranges::equal(moved(op, offset, 2 * kPart),
                                   std::span(target.data() + offset, 2 * kPart)));
    pair.received(1, kMillisecond);
  }
  pair.world.check_at_rest();
}

TEST_P(LateMemoryTest, AtomicsWaitAndExecuteOnce) {
  LateMemory near(pair.world, *pair.near->host, pair.local);
  LateMemory far(pair.world, *pair.far->host, pair.remote);
  uint64_t word;
  std::memcpy(&word, before_remote.data() + 3 * kPage, 8);
  for (uint64_t i = 0; i < 4; ++i)
    pair.post_to(SendOp::kFetchAdd, i, {pair.local.address(8 * i), 8, near.key},
                 pair.remote.address(3 * kPage), far.key);
  EXPECT_TRUE(pair.sent(1, 5 * kMillisecond).empty());
  EXPECT_EQ(far.slices_in(kWanted), range(3, 1));
  far.fill_wanted(random);
  near.fill_wanted(random);
  for (const auto& done : pair.sent(4)) EXPECT_EQ(done.status, WcStatus::kSuccess);
  uint64_t after, fetched;
  std::memcpy(&after, pair.remote.data() + 3 * kPage, 8);
  EXPECT_EQ(after, word + 4);
  for (uint64_t i = 0; i < 4; ++i) {
    std::memcpy(&fetched, pair.local.data() + 8 * i, 8);
    EXPECT_EQ(fetched, word + i);
  }
}

// A machine may be so busy that it takes long. No answer to a READ says that it waits.
TEST(LateMemory, NoConnectionEndsBecauseASliceTakesLong) {
  QpSettings impatient;
  impatient.timeout = 8;  // with 7 repetitions, silence ends a connection after 64 ms
  Pair pair(impatient);
  LateMemory far(pair.world, *pair.far->host, pair.remote);
  Random random(3);
  for (const SendOp op : {SendOp::kWrite, SendOp::kSend, SendOp::kFetchAdd}) {
    SCOPED_TRACE(static_cast<int>(op));
    const uint64_t offset = 4 * kPage * (1 + static_cast<uint64_t>(op));
    if (op == SendOp::kSend)
      pair.post_receive_with(5, {pair.remote.address(offset), kPage, far.key});
    pair.post_to(op, 1, pair.at(offset, op == SendOp::kFetchAdd ? 8 : kPage),
                 pair.remote.address(offset), far.key);
    EXPECT_TRUE(pair.sent(1, 200 * kMillisecond).empty());
    far.fill_wanted(random);
    EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
    pair.received(1, kMillisecond);
  }
}

// Nobody sends such packets again: they are held, and what comes behind them waits its turn.
TEST(LateMemory, UnreliableMessagesThatComeTooEarlyAreHeld) {
  QpSettings unreliable;
  unreliable.type = QpType::kUc;
  Pair pair(unreliable);
  LateMemory far(pair.world, *pair.far->host, pair.remote);
  pair.post_receive_with(5, {pair.remote.address(kPage), kPage, far.key});
  ASSERT_EQ(pair.post_to(SendOp::kSend, 1, pair.at(0, 1000), 0, 0), 0);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess) << "it has left";
  EXPECT_TRUE(pair.received(1, kMillisecond).empty());
  EXPECT_EQ(far.slices_in(kWanted), range(1, 1));
  pair.post_receive_with(6, {pair.remote.address(2 * kPage), kPage, far.key});
  ASSERT_EQ(pair.post_to(SendOp::kSend, 2, pair.at(2000, 1000), 0, 0), 0);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(pair.received(1, kMillisecond).empty());
  far.fill_all();
  const auto received = pair.received(2);
  ASSERT_EQ(received.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(received[i].status, WcStatus::kSuccess);
    EXPECT_EQ(received[i].wr_id, 5 + i);
  }
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, kPage, 1000));
  EXPECT_TRUE(equal(pair.local, 2000, pair.remote, 2 * kPage, 1000));
}

TEST_P(LateMemoryTest, FilledMemoryBecomesOrdinary) {
  LateMemory far(pair.world, *pair.far->host, pair.remote);
  far.fill_all();
  far.take_effect();
  pair.post_to(SendOp::kRead, 1, pair.at(0, 8 * kPage), pair.remote.address(), far.key);
  ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 8 * kPage));
  EXPECT_EQ(pair.far->host->counter(Counter::unfilled_put_off), 0u);
}

// Word that memory is gone concerns what the mem fd reaches: this is in the mirror, or comes there.
TEST_P(LateMemoryTest, RevocationsDontConcernIt) {
  LateMemory far(pair.world, *pair.far->host, pair.remote);
  pair.far->host->revoke(pair.remote.address(), pair.remote.size());
  far.fill_all();
  pair.post_to(SendOp::kWrite, 1, pair.at(0, 8 * kPage), pair.remote.address(), far.key);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 8 * kPage));
}

// It need not wait for slices that may never be filled.
TEST_P(LateMemoryTest, UnfilledMemoryIsDeregisteredAtOnce) {
  LateMemory far(pair.world, *pair.far->host, pair.remote);
  pair.post_to(SendOp::kRead, 1, pair.at(0, 8 * kPage), pair.remote.address(), far.key);
  EXPECT_TRUE(pair.sent(1, kMillisecond).empty());
  pair.far->host->remove_mr(far.key);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kRemAccessErr);
  pair.world.check_at_rest();
}

INSTANTIATE_TEST_SUITE_P(Transports, LateMemoryTest,
                         testing::Values(Transport::kHostnic, Transport::kRoce),
                         [](const auto& info) {
                           return info.param == Transport::kRoce ? "roce" : "hostnic";
                         });

}  // namespace
}  // namespace hostnic::sim
