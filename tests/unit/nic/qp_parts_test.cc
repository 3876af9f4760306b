// SPDX-License-Identifier: BSD-3-Clause
// A NIC's queue pairs by number, its reorder buffers, and whose memory a key reaches. Without a
// NIC.
#include <gtest/gtest.h>
#include <rte_mbuf.h>

#include <cerrno>
#include <memory>
#include <set>
#include <vector>

#include "dataplane/nic/limits.h"
#include "dataplane/nic/memory/placement.h"
#include "dataplane/nic/qp/qp_directory.h"
#include "dataplane/nic/qp/reorder_buffer.h"
#include "protocol/wire/multicast.h"
#include "tests/unit/nic/packet_buffers.h"

namespace hostnic {
namespace {

// ---- QpDirectory

TEST(QpDirectory, NumbersAreSomebodysOnce) {
  QpDirectory qps(4);
  std::set<uint32_t> numbers;
  std::vector<QpContext*> made;
  for (int i = 0; i < 4; ++i) {
    QpContext* qp = qps.add(std::make_unique<QpContext>());
    ASSERT_NE(qp, nullptr);
    EXPECT_EQ(qps.find(qp->qpn), qp);
    EXPECT_GE(qp->qpn & 0xffff, QpDirectory::kFirstIndex) << "clear of the special queue pairs";
    numbers.insert(qp->qpn);
    made.push_back(qp);
  }
  EXPECT_EQ(numbers.size(), 4u);
  EXPECT_EQ(qps.add(std::make_unique<QpContext>()), nullptr) << "there are as many as may be";
  const uint32_t gone = made[1]->qpn;
  qps.remove(*made[1]);
  EXPECT_EQ(qps.find(gone), nullptr);
  QpContext* again = qps.add(std::make_unique<QpContext>());
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->qpn & 0xffff, gone & 0xffff);
  EXPECT_NE(again->qpn, gone) << "packets of the one before are not for it";
  EXPECT_EQ(qps.find(gone), nullptr);
}

// Wherever the numbers begin, also where they run over the last index.
TEST(QpDirectory, AllThatLiveAreVisited) {
  for (uint64_t seed = 1; seed < 32; ++seed) {
    QpDirectory qps(8, seed);
    std::set<const QpContext*> alive;
    const auto visited = [&qps] {
      std::multiset<const QpContext*> seen;
      qps.for_each([&](const QpContext& qp) { seen.insert(&qp); });
      return seen;
    };
    EXPECT_TRUE(visited().empty());
    for (int i = 0; i < 40; ++i) {
      if (alive.size() < 8) alive.insert(qps.add(std::make_unique<QpContext>()));
      if (i % 3 == 1) {
        const QpContext* gone = *std::next(alive.begin(), i % static_cast<int>(alive.size()));
        alive.erase(gone);
        qps.remove(*gone);
      }
      EXPECT_EQ(visited(), std::multiset<const QpContext*>(alive.begin(), alive.end()));
    }
  }
}

TEST(QpDirectory, AnyNumberMayBeAskedFor) {
  QpDirectory qps(1);
  for (const uint32_t qpn : {0u, 1u, 16u, 0x10010u, 0xffffffu, 0xffffffffu}) {
    EXPECT_EQ(qps.find(qpn), nullptr) << qpn;
    qps.prefetch(qpn, QpPart::kReceives);
    qps.prefetch_status(qpn);
  }
}

// Numbers of one start of hostnicd should be none of the one before.
TEST(QpDirectory, NobodyKnowsTheFirstNumber) {
  std::set<uint32_t> first, indices;
  for (int i = 0; i < 32; ++i) {
    QpDirectory qps(16384, /*seed=*/0);
    const uint32_t qpn = qps.add(std::make_unique<QpContext>())->qpn;
    first.insert(qpn);
    indices.insert(qpn & 0xffff);
  }
  EXPECT_GT(first.size(), 30u);
  EXPECT_GT(indices.size(), 25u);
  QpDirectory one(64, 7), same(64, 7);
  EXPECT_EQ(one.add(std::make_unique<QpContext>())->qpn,
            same.add(std::make_unique<QpContext>())->qpn)
      << "with a seed they are the same each time";
}

TEST(QpDirectory, GenerationsNeverReachTheMulticastNumber) {
  QpDirectory qps(1);
  for (int i = 0; i < 600; ++i) {
    QpContext* qp = qps.add(std::make_unique<QpContext>());
    ASSERT_NE(qp, nullptr);
    EXPECT_NE(qp->qpn >> 16, 0u);
    EXPECT_NE(qp->qpn >> 16, raw(wire::kMulticastQpn) >> 16);
    qps.remove(*qp);
  }
}

// ---- ReorderPool

class Reordering : public testing::Test {
 protected:
  static constexpr uint32_t kWindow = 64, kPackets = 64;
  static void SetUpTestSuite() {
    ASSERT_TRUE(packet_buffers_start());
    copies_ = rte_pktmbuf_pool_create("reordering_test", kPackets, 0, 0, 2048, 0);
    ASSERT_NE(copies_, nullptr);
  }
  static void TearDownTestSuite() { rte_mempool_free(copies_); }
  void SetUp() override {
    for (ReceiveSpace* space : {&one_, &other_}) space->window.reset(Psn(0), kWindow);
  }
  static std::unique_ptr<rte_mbuf, void (*)(rte_mbuf*)> packet() {
    static rte_mempool* pool = rte_pktmbuf_pool_create("reordering_from", 7, 0, 0, 2048, 0);
    rte_mbuf* made = rte_pktmbuf_alloc(pool);
    rte_pktmbuf_append(made, 100);
    return {made, rte_pktmbuf_free};
  }

  static inline rte_mempool* copies_ = nullptr;
  Counters counters_;
  ReorderPool pool_{kWindow, copies_, counters_};
  ReceiveSpace one_, other_;
};

TEST_F(Reordering, WhatEntersComesOutAtItsPsn) {
  ASSERT_TRUE(pool_.enter(one_, Psn(5), packet().get()));
  ASSERT_TRUE(pool_.take_slot(one_, Psn(7), ReorderSlot::receive_end(9)));
  EXPECT_EQ(pool_.blocks_used(), 1u);
  EXPECT_EQ(pool_.packets(), 1u);
  EXPECT_TRUE(pool_.release_slot(one_, Psn(6)).empty());
  EXPECT_EQ(pool_.release_slot(one_, Psn(7)).sn(), 9u);
  const ReorderSlot slot = pool_.release_slot(one_, Psn(5));
  ASSERT_NE(slot.packet(), nullptr);
  EXPECT_EQ(slot.packet()->pkt_len, 100u);
  rte_pktmbuf_free(slot.packet());
  EXPECT_EQ(pool_.blocks_used(), 0u) << "nothing waits: the block is others'";
  EXPECT_EQ(pool_.packets(), 0u);
}

TEST_F(Reordering, OneWithAHoleLeavesRoomForOthers) {
  uint32_t entered = 0;
  for (uint32_t psn = 1; psn < kWindow && pool_.enter(one_, Psn(psn), packet().get()); ++psn)
    ++entered;
  EXPECT_LT(entered, pool_.packet_limit());
  EXPECT_EQ(counters_.get(Counter::reorder_full), 1u);
  EXPECT_TRUE(pool_.enter(other_, Psn(1), packet().get()));
  pool_.drop(one_);
  pool_.drop(other_);
  EXPECT_EQ(pool_.packets(), 0u);
  EXPECT_EQ(rte_mempool_in_use_count(copies_), 0u);
}

// ---- Placement: who may use a key

class Keys : public testing::Test {
 protected:
  static constexpr uint64_t kIova = 0x10000;
  static constexpr uint32_t kAll = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead;

  Keys() {
    MrTable::Init init;
    init.client_id = 1;
    init.pd = 2;
    init.access = kAccessLocalWrite | kAccessRemoteRead;
    init.iova = kIova;
    init.length_bytes = 100;
    key_ = mrs_.add(std::move(init));
  }
  bool reaches(const AccessScope& scope, uint64_t va, uint64_t bytes, uint32_t access) {
    return placement_.remote_range(scope, key_, va, bytes, access).region != nullptr;
  }

  MrTable mrs_{16};
  WindowTable windows_{mrs_};
  Counters counters_;
  Placement placement_{mrs_, windows_, counters_};
  uint32_t key_ = 0;
  const AccessScope owner_{.client_id = 1, .pd = 2, .rights = kAll, .qpn = 0x10010};
};

TEST_F(Keys, ClientDomainRightsAndBoundsCount) {
  EXPECT_TRUE(reaches(owner_, kIova, 100, kAccessRemoteRead));
  EXPECT_TRUE(reaches(owner_, kIova + 100, 0, kAccessRemoteRead));
  EXPECT_FALSE(reaches(owner_, kIova + 1, 100, kAccessRemoteRead));
  EXPECT_FALSE(reaches(owner_, kIova - 1, 1, kAccessRemoteRead));
  EXPECT_FALSE(reaches(owner_, kIova, UINT64_MAX, kAccessRemoteRead));
  EXPECT_FALSE(reaches(owner_, kIova, 1, kAccessRemoteWrite)) << "the region's rights";
  AccessScope scope = owner_;
  scope.rights = 0;
  EXPECT_FALSE(reaches(scope, kIova, 1, kAccessRemoteRead)) << "the queue pair's rights";
  scope = owner_;
  scope.client_id = 9;
  EXPECT_FALSE(reaches(scope, kIova, 1, kAccessRemoteRead));
  scope = owner_;
  scope.pd = 9;
  EXPECT_FALSE(reaches(scope, kIova, 1, kAccessRemoteRead));
}

TEST_F(Keys, ATypeTwoWindowIsItsQueuePairsAlone) {
  ASSERT_TRUE(mrs_.invalidate(key_, 1));
  MrTable::Init init;
  init.client_id = 1;
  init.pd = 2;
  init.access = kAll | kAccessMwBind;
  init.iova = kIova;
  init.length_bytes = 100;
  const uint32_t region = mrs_.add(std::move(init));
  key_ = windows_.add(1, 2, WindowType::k2);
  BindWindowCommand bind{};
  bind.key = key_;
  bind.mr_key = region;
  bind.va = kIova + 10;
  bind.length_bytes = 50;
  bind.access = kAccessRemoteRead;
  AccessScope other = owner_;
  other.pd = 3;
  EXPECT_EQ(windows_.bind(other, bind), EINVAL) << "another domain's";
  ASSERT_EQ(windows_.bind(owner_, bind), 0);
  EXPECT_TRUE(reaches(owner_, kIova + 10, 50, kAccessRemoteRead));
  EXPECT_FALSE(reaches(owner_, kIova + 9, 1, kAccessRemoteRead));
  EXPECT_FALSE(reaches(owner_, kIova + 10, 1, kAccessRemoteWrite));
  other = owner_;
  other.qpn = 0x10011;
  EXPECT_FALSE(reaches(other, kIova + 10, 1, kAccessRemoteRead));
  EXPECT_EQ(windows_.invalidate(other, key_), EINVAL);
  EXPECT_EQ(windows_.invalidate(owner_, key_), 0);
  EXPECT_FALSE(reaches(owner_, kIova + 10, 1, kAccessRemoteRead));
}

}  // namespace
}  // namespace hostnic
