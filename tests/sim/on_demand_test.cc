// SPDX-License-Identifier: BSD-3-Clause
// On-demand regions at the NIC: pages that are not there when it gets to them, and atomics.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>

#include "tests/sim/pair.h"

namespace hostnic::sim {
namespace {

using driver::AsyncEvent;
constexpr uint32_t kMtu = 4096, kPage = 4096;

// Takes one page away, and gives another, empty one back at the end or before.
class Hole {
 public:
  Hole(const Memory& memory, uint64_t offset)
      : page_(reinterpret_cast<void*>(memory.address(offset) & ~uint64_t{kPage - 1})) {
    munmap(page_, kPage);
  }
  ~Hole() { fill(); }
  Hole(const Hole&) = delete;
  Hole& operator=(const Hole&) = delete;
  void fill() {
    if (std::exchange(filled_, true)) return;
    EXPECT_EQ(page_, mmap(page_, kPage, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
  }

 private:
  void* page_;
  bool filled_ = false;
};

struct Bench {
  Bench()
      : rkey(pair.far->host->add_mr(pair.remote, kAllAccess | kAccessOnDemand, Reach::kMemFd)),
        lkey(pair.near->host->add_mr(pair.local, kAllAccess | kAccessOnDemand, Reach::kMemFd)) {}
  void write_or_read(SendOp op, uint64_t wr_id, uint64_t offset, uint32_t bytes) {
    pair.post_to(op, wr_id, pair.at(offset, bytes), pair.remote.address(offset), rkey);
  }
  bool access_error() {
    pair.world.run_for(kMillisecond);
    return std::ranges::any_of(pair.far->host->events,
                               [](const Event& e) { return e.event == AsyncEvent::kQpAccessErr; });
  }
  void expect_remote_error() {
    EXPECT_EQ(pair.status_of_one(), WcStatus::kRemAccessErr);
    EXPECT_TRUE(access_error());
    EXPECT_EQ(pair.near->state(), QpState::kErr);
    EXPECT_EQ(pair.far->state(), QpState::kErr);
  }

  Pair pair;
  uint32_t rkey, lkey;
};

TEST(OnDemand, NewPagesAreUsed) {
  Bench bench;
  bench.write_or_read(SendOp::kWrite, 1, 0, 4 * kPage);
  ASSERT_EQ(bench.pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(bench.pair.local, 0, bench.pair.remote, 0, 4 * kPage));
  Hole(bench.pair.remote, kPage).fill();
  bench.write_or_read(SendOp::kRead, 2, 0, 4 * kPage);
  ASSERT_EQ(bench.pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(std::all_of(bench.pair.local.data() + kPage, bench.pair.local.data() + 2 * kPage,
                          [](uint8_t byte) { return byte == 0; }));
  EXPECT_TRUE(equal(bench.pair.local, 0, bench.pair.remote, 0, 4 * kPage));
}

TEST(OnDemand, WriteToAMissingPage) {
  Bench bench;
  const Hole hole(bench.pair.remote, 2 * kPage);
  bench.write_or_read(SendOp::kWrite, 1, 0, 4 * kPage);
  bench.expect_remote_error();
}

TEST(OnDemand, WriteImmToAMissingPageFailsItsReceive) {
  Bench bench;
  bench.pair.post_receive(5, 0, kMtu);
  const Hole hole(bench.pair.remote, kPage);
  bench.write_or_read(SendOp::kWriteImm, 1, kPage, 64);
  bench.expect_remote_error();
  const auto received = bench.pair.received(1);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].wr_id, 5u);
  EXPECT_EQ(received[0].status, WcStatus::kLocAccessErr);
}

TEST(OnDemand, ReadOfAMissingPage) {
  for (const uint64_t at : {uint64_t{0}, uint64_t{3 * kPage}}) {
    Bench bench;
    const Hole hole(bench.pair.remote, at);
    bench.write_or_read(SendOp::kRead, 1, 8, 4 * kPage - 16);
    bench.expect_remote_error();
  }
}

// Which READ it was stays known though a next one follows at once.
TEST(OnDemand, TheReadThatFailsIsTheOneThatMisses) {
  Bench bench;
  const Hole hole(bench.pair.remote, 16 * kPage);
  bench.write_or_read(SendOp::kRead, 1, 0, 4 * kPage);
  bench.write_or_read(SendOp::kRead, 2, 16 * kPage, kPage);
  bench.write_or_read(SendOp::kRead, 3, 32 * kPage, kPage);
  const auto done = bench.pair.sent(3);
  ASSERT_EQ(done.size(), 3u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kRemAccessErr);
  EXPECT_EQ(done[2].status, WcStatus::kWrFlushErr);
}

// Far behind the first page, and pulled later: the READ ends all the same.
TEST(OnDemand, ALongReadEndsAtAMissingPage) {
  Bench bench;
  const Hole hole(bench.pair.remote, 200 * kPage);
  bench.write_or_read(SendOp::kRead, 1, 0, Pair::kBytes);
  bench.expect_remote_error();
}

TEST(OnDemand, ReceiveIntoAMissingPage) {
  Bench bench;
  const Hole hole(bench.pair.remote, 0);
  bench.pair.post_receive_with(5, {bench.pair.remote.address(), kMtu, bench.rkey});
  bench.pair.post(SendOp::kSend, 1, bench.pair.at(0, 64));
  EXPECT_EQ(bench.pair.status_of_one(), WcStatus::kRemOpErr);
  const auto received = bench.pair.received(1);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].status, WcStatus::kLocProtErr);
}

TEST(OnDemand, OwnPagesThatAreMissing) {
  for (const SendOp op : {SendOp::kWrite, SendOp::kRead, SendOp::kSend}) {
    Bench bench;
    Pair& p = bench.pair;
    const Hole hole(p.local, kPage);
    p.post_receive(5, 0, 4 * kMtu);
    p.post(op, 1, {p.local.address(), 3 * kPage, bench.lkey});
    EXPECT_EQ(p.status_of_one(), WcStatus::kLocProtErr);
    EXPECT_EQ(p.near->state(), QpState::kErr);
    EXPECT_EQ(p.far->state(), QpState::kRts);
  }
}

TEST(OnDemand, AtomicsAreRefused) {
  for (const SendOp op : {SendOp::kFetchAdd, SendOp::kCompareSwap}) {
    Bench bench;
    bench.write_or_read(op, 1, 0, 8);
    bench.expect_remote_error();
    EXPECT_EQ(bench.pair.remote.data()[0], 0);
  }
}

TEST(OnDemand, AtomicResultsMayLandThere) {
  Bench bench;
  bench.pair.post(SendOp::kFetchAdd, 1, {bench.pair.local.address(), 8, bench.lkey});
  EXPECT_EQ(bench.pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(std::all_of(bench.pair.local.data(), bench.pair.local.data() + 8,
                          [](uint8_t byte) { return byte == 0; }));
}

}  // namespace
}  // namespace hostnic::sim
