// SPDX-License-Identifier: BSD-3-Clause
// Segmentation offload with many queue pairs: their ACKs, their messages of one packet and their
// READ requests share buffers, and nobody can tell but by the speed.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "dataplane/nic/limits.h"
#include "dataplane/nic/packet/bundle.h"
#include "dataplane/nic/packet/packet.h"
#include "dataplane/nic/packet/packet_release.h"
#include "tests/sim/pair.h"

namespace hostnic::sim {
namespace {

WorldSettings settings_with(bool segmentation) {
  WorldSettings settings;
  settings.segmentation = segmentation;
  return settings;
}

// Many connections from one host to another, a message on each at a time.
class ManyConnections {
 public:
  static constexpr uint32_t kCount = 30, kBytes = 64;

  explicit ManyConnections(const WorldSettings& settings)
      : world(settings), local(kCount * kBytes), remote(kCount * kBytes) {
    for (uint32_t i = 0; i < kCount; ++i) {
      QpSettings qp;
      qp.psn = 0xfffffe + i;
      near.push_back(world.make_endpoint(0, qp));
      far.push_back(world.make_endpoint(settings.hosts > 1 ? 1 : 0, qp));
      world.connect(*near[i], *far[i]);
    }
    lkey = near[0]->host->add_mr(local);
    rkey = far[0]->host->add_mr(remote, kAllAccess);
    for (size_t i = 0; i < local.size(); ++i) local.data()[i] = static_cast<uint8_t>(i * 7 + 1);
  }
  // Its part of `local` goes to `remote`; of a READ, the other way.
  void post(uint32_t i, SendOp op = SendOp::kWrite, uint32_t key = 0) {
    const Sge sge{local.address(i * kBytes), kBytes, lkey};
    EXPECT_EQ(near[i]->post_send(
                  Pair::request(op, i, sge, remote.address(i * kBytes), key != 0 ? key : rkey)),
              0);
  }
  void post_receive(uint32_t i) {
    const Sge sge{remote.address(i * kBytes), kBytes, rkey};
    EXPECT_EQ(far[i]->post_recv({.wr_id = i, .sges = {&sge, 1}}), 0);
  }
  WcStatus status_of(uint32_t i) {
    const auto done = take_completions(world, *near[i], *near[i]->send_cq, 1, 2 * kSecond);
    EXPECT_EQ(done.size(), 1u) << "connection " << i;
    return done.empty() ? WcStatus::kGeneralErr : done[0].status;
  }
  // One message on each, so many times.
  void send(uint32_t times, SendOp op) {
    for (uint32_t round = 0; round < times; ++round) {
      if (op == SendOp::kRead) std::memcpy(remote.data(), local.data(), local.size());
      std::memset((op == SendOp::kRead ? local : remote).data(), 0, local.size());
      for (uint32_t i = 0; op == SendOp::kSend && i < kCount; ++i) post_receive(i);
      for (uint32_t i = 0; i < kCount; ++i) post(i, op);
      for (uint32_t i = 0; i < kCount; ++i)
        ASSERT_EQ(status_of(i), WcStatus::kSuccess) << "connection " << i << ", round " << round;
      EXPECT_TRUE(equal(local, 0, remote, 0, local.size()));
    }
    EXPECT_FALSE(world.failed()) << world.report();
  }
  void write(uint32_t times) { send(times, SendOp::kWrite); }
  bool arrived(uint32_t i) const { return equal(local, i * kBytes, remote, i * kBytes, kBytes); }

  World world;
  std::vector<std::unique_ptr<Endpoint>> near, far;
  Memory local, remote;
  uint32_t lkey = 0, rkey = 0;
};

TEST(BundledPackets, AcksOfManyConnectionsAreOneBuffer) {
  for (const uint32_t hosts : {2u, 1u}) {
    WorldSettings settings = settings_with(true);
    settings.hosts = hosts;
    ManyConnections connections(settings);
    connections.write(5);
    World& world = connections.world;
    constexpr uint64_t kAcks = 5 * ManyConnections::kCount;
    EXPECT_EQ(world.sum(Counter::acks_sent), kAcks);
    EXPECT_EQ(world.sum(Counter::acks_received), kAcks);
    EXPECT_EQ(world.sum(Counter::tx_packets), 2 * kAcks);
    EXPECT_EQ(world.sum(Counter::rx_packets), 2 * kAcks);
    EXPECT_EQ(world.sum(Counter::rx_bytes), world.sum(Counter::tx_bytes));
    // A full one stands for eleven.
    EXPECT_GE(world.sum(Counter::tx_bundles), kAcks / 11);
    EXPECT_LE(world.sum(Counter::tx_bundles), kAcks / 2);
    EXPECT_EQ(world.sum(Counter::rx_bundles), world.sum(Counter::tx_bundles));
  }
}

TEST(BundledPackets, AcksTravelAloneWithoutIt) {
  ManyConnections connections(settings_with(false));
  connections.write(2);
  EXPECT_EQ(connections.world.sum(Counter::tx_bundles), 0u);
  EXPECT_EQ(connections.world.sum(Counter::acks_received), 2u * ManyConnections::kCount);
}

// Those that are lost are lost alone.
TEST(BundledPackets, ImpairmentsOnArrivalSeeAcks) {
  ManyConnections connections(settings_with(true));
  World& world = connections.world;
  world.impair(0, "rx drop nth 7 kind ack");
  connections.write(1);
  const auto seen = world.host(0).nic().impairment_counters(true);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->dropped, 1u);
  EXPECT_GE(world.sum(Counter::tx_bundles), 2u);
  EXPECT_EQ(world.sum(Counter::retransmitted_packets), 1u);
  EXPECT_GE(world.host(0).counter(Counter::rx_bundles), 2u) << "the others stay together";
  EXPECT_EQ(world.sum(Counter::bundle_parts), 0u);
}

// The ACK of a queue pair that has gone is nobody's, and the others get theirs.
TEST(BundledPackets, AcksInABundleAreDispatchedOneByOne) {
  WorldSettings settings = settings_with(true);
  // Longer than the end of a queue pair waits for its ACKs.
  settings.link.delay_ns = 110 * kMillisecond;
  ManyConnections connections(settings);
  World& world = connections.world;
  for (uint32_t i = 0; i < ManyConnections::kCount; ++i) connections.post(i);
  world.run_for(111 * kMillisecond);  // the requests have arrived, the ACKs have not
  ASSERT_EQ(world.sum(Counter::acks_sent), ManyConnections::kCount);
  ASSERT_EQ(world.sum(Counter::acks_received), 0u);
  ASSERT_EQ(connections.near[3]->host->driver().destroy_qp(connections.near[3]->qp), 0);
  world.run_for(111 * kMillisecond);
  // All messages have been probed for meanwhile, each as often.
  const uint64_t each = world.host(0).counter(Counter::rx_unknown_qp);
  EXPECT_GE(each, 1u);
  EXPECT_EQ(world.sum(Counter::acks_received), each * (ManyConnections::kCount - 1));
  EXPECT_GE(world.host(0).counter(Counter::rx_bundles), 2u);
  for (uint32_t i = 0; i < ManyConnections::kCount; ++i) {
    if (i == 3) continue;
    EXPECT_EQ(connections.near[i]->poll(*connections.near[i]->send_cq).size(), 1u) << i;
  }
}

TEST(BundledPackets, RequestsOfManyConnectionsAreOneBuffer) {
  for (const SendOp op : {SendOp::kWrite, SendOp::kSend, SendOp::kRead}) {
    for (const uint32_t hosts : {2u, 1u}) {
      SCOPED_TRACE(testing::Message() << "op " << static_cast<int>(op) << ", hosts " << hosts);
      constexpr uint64_t kRequests = 5 * ManyConnections::kCount;
      std::array<uint64_t, 2> packets, bytes, placed;
      for (const bool segmentation : {false, true}) {
        WorldSettings settings = settings_with(segmentation);
        settings.hosts = hosts;
        ManyConnections connections(settings);
        connections.send(5, op);
        World& world = connections.world;
        if (op == SendOp::kWrite) {  // receives that are posted are said in packets, too
          EXPECT_EQ(world.sum(Counter::descriptors), kRequests);
          EXPECT_EQ(world.sum(Counter::acks_sent), kRequests);
          EXPECT_EQ(world.sum(Counter::acks_received), kRequests);
        }
        EXPECT_EQ(world.sum(Counter::rx_packets), world.sum(Counter::tx_packets));
        EXPECT_EQ(world.sum(Counter::rx_bytes), world.sum(Counter::tx_bytes));
        EXPECT_EQ(world.sum(Counter::rx_bundles), world.sum(Counter::tx_bundles));
        if (segmentation && hosts == 2) {
          // A full one stands for sixteen.
          EXPECT_GE(world.host(0).counter(Counter::tx_bundles), kRequests / 16);
          EXPECT_LE(world.host(0).counter(Counter::tx_bundles), kRequests / 4);
        }
        packets[segmentation] = world.sum(Counter::tx_packets);
        bytes[segmentation] = world.sum(Counter::tx_bytes);
        placed[segmentation] = world.sum(Counter::bytes_copied_mapped);
      }
      EXPECT_EQ(packets[1], packets[0]);
      EXPECT_EQ(bytes[1], bytes[0]);
      EXPECT_EQ(placed[1], placed[0]);
    }
  }
}

// Those that are lost are lost alone.
TEST(BundledPackets, ImpairmentsOnArrivalSeeRequests) {
  for (const SendOp op : {SendOp::kWrite, SendOp::kSend, SendOp::kRead}) {
    SCOPED_TRACE(static_cast<int>(op));
    ManyConnections connections(settings_with(true));
    World& world = connections.world;
    world.impair(1, "rx drop nth 7");
    connections.send(1, op);
    const auto seen = world.host(1).nic().impairment_counters(true);
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->dropped, 1u);
    EXPECT_GE(world.host(0).counter(Counter::tx_bundles), 2u);
    EXPECT_EQ(world.sum(Counter::retransmitted_packets), 1u);
    EXPECT_GE(world.host(1).counter(Counter::rx_bundles), 2u) << "the others stay together";
    EXPECT_EQ(world.sum(Counter::bundle_parts), 0u);
  }
}

// Whichever of a bundle's packets are lost, in either direction: the first, the last, most.
TEST(BundledPackets, AnyPacketsOfABundleMayBeLost) {
  for (const SendOp op : {SendOp::kWrite, SendOp::kSend, SendOp::kRead}) {
    for (const char* which : {"nth 1", "nth 16", "every 3", "20%", "first 20"}) {
      for (const char* direction : {"rx", "tx"}) {
        SCOPED_TRACE(testing::Message() << static_cast<int>(op) << " " << direction << which);
        ManyConnections connections(settings_with(true));
        for (uint32_t host = 0; host < 2; ++host)
          connections.world.impair(host, std::string(direction) + " drop " + which, 3 + host);
        connections.send(3, op);
        connections.world.check_at_rest();
        EXPECT_FALSE(connections.world.failed()) << connections.world.report();
      }
    }
  }
}

// What is wrong with one is nothing to those around it: a key that is none, a receive that is not
// there yet, a queue pair that has gone.
TEST(BundledPackets, RequestsInABundleAreDispatchedOneByOne) {
  for (const SendOp op : {SendOp::kWrite, SendOp::kSend}) {
    WorldSettings settings = settings_with(true);
    settings.link.delay_ns = 20 * kMicrosecond;
    ManyConnections connections(settings);
    World& world = connections.world;
    constexpr uint32_t kRefused = 0, kGone = 5, kUnready = 7, kCount = ManyConnections::kCount;
    for (uint32_t i = 0; op == SendOp::kSend && i < kCount; ++i) {
      if (i != kUnready) connections.post_receive(i);
    }
    for (uint32_t i = 0; i < kCount; ++i)
      connections.post(i, op, op == SendOp::kWrite && i == kRefused ? connections.rkey ^ 1 : 0);
    world.run_for(10 * kMicrosecond);  // they are on their way
    ASSERT_EQ(world.host(1).counter(Counter::rx_packets), 0u);
    Endpoint& gone = *connections.far[kGone];
    ASSERT_EQ(gone.host->driver().destroy_qp(gone.qp), 0);
    world.run_for(20 * kMicrosecond);
    EXPECT_EQ(world.host(1).counter(Counter::rx_packets), kCount);
    EXPECT_GE(world.host(1).counter(Counter::rx_bundles), 2u);
    for (uint32_t i = 0; i < kCount; ++i) {
      const bool refused = op == SendOp::kWrite && i == kRefused;
      const bool unready = op == SendOp::kSend && i == kUnready;
      EXPECT_EQ(connections.arrived(i), !refused && !unready && i != kGone) << i;
    }
    EXPECT_EQ(world.host(1).counter(Counter::rnr_nak_sent), op == SendOp::kSend ? 1u : 0u);
    EXPECT_EQ(world.host(1).counter(Counter::nak_sent), op == SendOp::kWrite ? 1u : 0u);
    if (op == SendOp::kSend) connections.post_receive(kUnready);
    for (uint32_t i = 0; i < kCount; ++i) {
      if (i == kGone) continue;
      const bool refused = op == SendOp::kWrite && i == kRefused;
      EXPECT_EQ(connections.status_of(i), refused ? WcStatus::kRemAccessErr : WcStatus::kSuccess);
      EXPECT_EQ(connections.arrived(i), !refused) << i;
    }
  }
}

// The same of what is asked for: a key that is none, a queue pair that has gone.
TEST(BundledPackets, ReadsInABundleAreDispatchedOneByOne) {
  WorldSettings settings = settings_with(true);
  settings.link.delay_ns = 20 * kMicrosecond;
  ManyConnections connections(settings);
  World& world = connections.world;
  constexpr uint32_t kRefused = 3, kGone = 5, kCount = ManyConnections::kCount;
  std::memcpy(connections.remote.data(), connections.local.data(), connections.local.size());
  std::memset(connections.local.data(), 0, connections.local.size());
  for (uint32_t i = 0; i < kCount; ++i)
    connections.post(i, SendOp::kRead, i == kRefused ? connections.rkey ^ 1 : 0);
  world.run_for(10 * kMicrosecond);  // they are on their way
  ASSERT_EQ(world.host(1).counter(Counter::rx_packets), 0u);
  Endpoint& gone = *connections.far[kGone];
  ASSERT_EQ(gone.host->driver().destroy_qp(gone.qp), 0);
  world.run_for(20 * kMicrosecond);
  EXPECT_EQ(world.host(1).counter(Counter::rx_packets), kCount);
  EXPECT_GE(world.host(1).counter(Counter::rx_bundles), 2u);
  EXPECT_EQ(world.host(1).counter(Counter::read_requests_served), kCount - 2);
  EXPECT_EQ(world.host(1).counter(Counter::nak_sent), 1u);
  for (uint32_t i = 0; i < kCount; ++i) {
    if (i == kGone) continue;
    EXPECT_EQ(connections.status_of(i),
              i == kRefused ? WcStatus::kRemAccessErr : WcStatus::kSuccess);
    EXPECT_EQ(connections.arrived(i), i != kRefused) << i;
  }
}

// A request in a bundle that comes behind a hole is a packet like others.
TEST(BundledPackets, ARequestInABundleMayComeAhead) {
  for (const SendOp op : {SendOp::kWrite, SendOp::kRead}) {
    SCOPED_TRACE(static_cast<int>(op));
    ManyConnections connections(settings_with(true));
    World& world = connections.world;
    constexpr uint32_t kCount = ManyConnections::kCount;
    if (op == SendOp::kRead) {
      std::memcpy(connections.remote.data(), connections.local.data(), connections.local.size());
      std::memset(connections.local.data(), 0, connections.local.size());
    }
    world.impair(1, "rx drop nth 7");
    for (uint32_t i = 0; i < kCount; ++i) connections.post(i, op);
    world.run_for(5 * kMicrosecond);
    ASSERT_EQ(world.host(1).counter(Counter::rx_packets), kCount);
    world.impair(1, "rx none");
    for (uint32_t i = 0; i < kCount; ++i) connections.post(i, op);
    world.run_for(5 * kMicrosecond);
    EXPECT_EQ(world.host(1).counter(Counter::out_of_sequence), 1u);
    EXPECT_EQ(world.host(1).counter(Counter::reorder_buffered), 1u);
    EXPECT_GE(world.host(1).counter(Counter::rx_bundles), 2u);
    for (uint32_t i = 0; i < kCount; ++i) {
      Endpoint& near = *connections.near[i];
      const auto done = take_completions(world, near, *near.send_cq, 2, 2 * kSecond);
      ASSERT_EQ(done.size(), 2u) << i;
      for (const auto& c : done) EXPECT_EQ(c.status, WcStatus::kSuccess) << i;
      EXPECT_TRUE(connections.arrived(i)) << i;
    }
    EXPECT_EQ(world.sum(Counter::retransmitted_packets), 1u);
  }
}

}  // namespace
}  // namespace hostnic::sim
