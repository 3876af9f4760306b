// SPDX-License-Identifier: BSD-3-Clause
// QP 1: management datagrams reach the other NIC's queue, whole and only there, with and without
// ICRC, and are lost like other packets.
#include "dataplane/nic/management/management.h"

#include <gtest/gtest.h>

#include "dataplane/nic/management/management_queue.h"
#include "dataplane/simulation/world.h"

namespace hostnic::sim {
namespace {

class Management : public testing::Test {
 protected:
  void start(const WorldSettings& settings) {
    world = std::make_unique<World>(settings);
    for (uint32_t i = 0; i < 2; ++i) {
      queues.push_back(std::make_unique<ManagementQueue>());
      world->host(i).nic().set_management(queues.back().get());
    }
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 5 + 1);
  }
  void TearDown() override {
    for (uint32_t i = 0; i < 2; ++i) world->host(i).nic().set_management(nullptr);
    world->check_at_rest();
    EXPECT_FALSE(world->failed()) << world->report();
  }
  Ipv4Address ip(uint32_t host) { return world->host(host).nic().settings().ip; }
  uint32_t arrived(uint32_t host) {
    ManagementDatagram datagram;
    uint32_t count = 0;
    for (; queues[host]->pop(datagram); ++count) {
      EXPECT_EQ(datagram.bytes, bytes);
      EXPECT_EQ(datagram.from, ip(0));
    }
    return count;
  }
  void send(uint32_t to) {
    world->host(0).nic().send_management(ip(0), ip(to), 0, bytes);
    world->run_for(kMillisecond);
  }

  std::unique_ptr<World> world;
  std::vector<std::unique_ptr<ManagementQueue>> queues;
  cm::MadBytes bytes;
};

TEST_F(Management, DatagramsArrive) {
  start({});
  for (int i = 0; i < 5; ++i) send(1);
  EXPECT_EQ(arrived(1), 5u);
  EXPECT_EQ(arrived(0), 0u);
  EXPECT_EQ(world->host(1).counter(Counter::management_received), 5u);
  EXPECT_EQ(world->host(1).counter(Counter::rx_unknown_qp), 0u);
}

TEST_F(Management, AlsoToTheSameNic) {
  start({});
  send(0);
  EXPECT_EQ(arrived(0), 1u);
}

TEST_F(Management, ALostOneIsLost) {
  start({});
  world->impair(1, "rx drop nth 2 kind send");
  for (int i = 0; i < 3; ++i) send(1);
  EXPECT_EQ(arrived(1), 2u);
}

TEST_F(Management, AFullQueueDropsAndCounts) {
  start({});
  for (uint32_t i = 0; i < ManagementQueue::kCapacity + 10; ++i) send(1);
  EXPECT_EQ(world->host(1).counter(Counter::management_dropped), 10u);
  EXPECT_EQ(arrived(1), ManagementQueue::kCapacity);
  send(1);
  EXPECT_EQ(arrived(1), 1u) << "there is room again";
}

cm::Inquiry inquiry(uint32_t bytes) {
  return {.transaction_id = 1, .request_id = 2, .datagram_bytes = bytes};
}

TEST_F(Management, AnInquiryArrivesAsLongAsItSays) {
  start({});
  Nic& from = world->host(0).nic();
  for (const uint32_t bytes : {256u, 512u, 1024u, 4096u}) {
    from.send_inquiry(ip(0), ip(1), inquiry(bytes));
    world->run_for(kMillisecond);
    ManagementDatagram datagram;
    ASSERT_TRUE(queues[1]->pop(datagram)) << bytes;
    EXPECT_EQ(cm::inquiry_in(*cm::parse(datagram.bytes)), inquiry(bytes));
  }
  EXPECT_EQ(world->host(0).counter(Counter::inquiries_sent), 4u);
  // One that is shorter than it says is none.
  bytes = cm::build(cm::mad_of(inquiry(512)));
  send(1);
  EXPECT_EQ(arrived(1), 0u);
  EXPECT_EQ(world->host(1).counter(Counter::rx_too_long), 1u);
}

TEST_F(Management, InquiriesBeyondTheRateAreDropped) {
  start({});
  Nic& from = world->host(0).nic();
  constexpr uint32_t kFlood = 300;
  for (uint32_t i = 0; i < kFlood; ++i) {
    from.send_inquiry(ip(0), ip(1), inquiry(256));
    world->run_for(kMillisecond / 10);
  }
  const uint64_t refused = world->host(1).counter(Counter::inquiries_refused);
  ManagementDatagram datagram;
  uint32_t passed = 0;
  while (queues[1]->pop(datagram)) ++passed;
  EXPECT_EQ(passed + refused, kFlood);
  EXPECT_GE(passed, hostnic::Management::kInquiryBurst);
  EXPECT_LE(passed, hostnic::Management::kInquiryBurst + 8) << "30 ms at 200 a second";
  send(1);
  EXPECT_EQ(arrived(1), 1u) << "other datagrams are not meant";
}

// Nobody listens: the packet is for no queue pair.
TEST_F(Management, WithoutAQueueItIsForNobody) {
  start({});
  world->host(1).nic().set_management(nullptr);
  send(1);
  EXPECT_EQ(world->host(1).counter(Counter::rx_unknown_qp), 1u);
}

}  // namespace
}  // namespace hostnic::sim
