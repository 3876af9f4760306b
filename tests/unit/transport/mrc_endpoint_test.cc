// SPDX-License-Identifier: BSD-3-Clause
// What a node of MRC keeps of ports and requests (docs/mrc.md, "Planes and ports").
#include <gtest/gtest.h>

#include <vector>

#include "protocol/transport/mrc/endpoint_requests.h"
#include "protocol/transport/mrc/port_status.h"

namespace hostnic::mrc {
namespace {

using wire::mrc::EndpointOperation;
using State = ProbeOutcome::State;

constexpr Ipv4Address kOwn{0x0a000001}, kPeer{0x0a000002}, kOther{0x0a000003};

TEST(MrcPorts, AreBitsFromOne) {
  EXPECT_EQ(PortStatus::all_of(1), 0b10u);
  EXPECT_EQ(PortStatus::all_of(4), 0b11110u);
  EXPECT_EQ(PortStatus::all_of(16), 0x1fffeu);
  PortStatus ports;
  ports.set_own(2, false);
  ports.set_own(4, false);
  EXPECT_EQ(ports.own_down(), 0b10100u);
  ports.set_own(2, true);
  EXPECT_EQ(ports.own_down(), 0b10000u);
}

TEST(MrcPorts, OfPeersAreRememberedAndTheOldestForgotten) {
  PortStatus ports;
  EXPECT_EQ(ports.down_of(kPeer), 0u);
  ports.note_peer(kPeer, 2);
  ports.note_peer(kOther, 4);
  ports.note_peer(kPeer, 8);
  EXPECT_EQ(ports.down_of(kPeer), 8u);
  EXPECT_EQ(ports.down_of(kOther), 4u);
  for (uint32_t i = 0; i < PortStatus::kPeers - 1; ++i) ports.note_peer(Ipv4Address{100 + i}, 2);
  EXPECT_EQ(ports.down_of(kPeer), 0u);
  EXPECT_EQ(ports.down_of(kOther), 4u);
  EXPECT_EQ(ports.down_of(Ipv4Address{100}), 2u);
}

struct Sent {
  uint16_t id;
  uint32_t port_mask;
  bool operator==(const Sent&) const = default;
};

class MrcRequests : public testing::Test {
 protected:
  std::vector<Sent> due(TimeNs now_ns, bool has_room = true) {
    std::vector<Sent> sent;
    requests_.for_each_due(now_ns, [&](const EndpointRequest& request, uint16_t id) {
      if (has_room) sent.push_back({id, request.port_mask});
      return has_room;
    });
    return sent;
  }
  uint16_t update(uint32_t mask, TimeNs now_ns, Ipv4Address peer = kPeer) {
    return requests_.add({.own = kOwn, .peer = peer, .port_mask = mask}, now_ns);
  }
  uint16_t probe(uint16_t port, TimeNs now_ns, Ipv4Address peer = kPeer) {
    return requests_.add({.operation = EndpointOperation::kPathProbe,
                          .own = kOwn,
                          .peer = peer,
                          .source_port = port},
                         now_ns);
  }
  EndpointRequests requests_;
};

TEST_F(MrcRequests, AnUpdateGoesAgainUntilItIsAnswered) {
  const uint16_t id = update(2, 10);
  EXPECT_EQ(requests_.next_due_ns(), 10u);
  EXPECT_FALSE(requests_.answer(id, kPeer, EndpointOperation::kPortStatus, 10)) << "not sent yet";
  EXPECT_EQ(due(10), (std::vector<Sent>{{id, 2}}));
  EXPECT_EQ(due(10 + EndpointRequests::kFirstWaitNs - 1), (std::vector<Sent>{}));
  EXPECT_EQ(due(10 + EndpointRequests::kFirstWaitNs), (std::vector<Sent>{{id, 2}}));
  EXPECT_FALSE(requests_.answer(id, kOther, EndpointOperation::kPortStatus, 20));
  EXPECT_FALSE(requests_.answer(id, kPeer, EndpointOperation::kPathProbe, 20));
  EXPECT_FALSE(requests_.answer(id + 1, kPeer, EndpointOperation::kPortStatus, 20));
  EXPECT_TRUE(requests_.answer(id, kPeer, EndpointOperation::kPortStatus, 20));
  EXPECT_FALSE(requests_.answer(id, kPeer, EndpointOperation::kPortStatus, 20));
  EXPECT_EQ(due(1'000'000'000), (std::vector<Sent>{}));
  EXPECT_EQ(requests_.next_due_ns(), UINT64_MAX);
}

TEST_F(MrcRequests, AnUpdateIsGivenUp) {
  update(2, 0);
  uint32_t sent = 0;
  for (TimeNs now = 0; requests_.next_due_ns() != UINT64_MAX; now = requests_.next_due_ns())
    sent += static_cast<uint32_t>(due(now).size());
  EXPECT_EQ(sent, EndpointRequests::kMostTries);
}

TEST_F(MrcRequests, ANewerUpdateTakesTheOldersPlace) {
  const uint16_t first = update(2, 0);
  update(6, 0, kOther);
  const uint16_t second = update(4, 0);
  EXPECT_NE(first, second);
  EXPECT_EQ(due(0).size(), 2u);
  EXPECT_FALSE(requests_.answer(first, kPeer, EndpointOperation::kPortStatus, 1));
  EXPECT_TRUE(requests_.answer(second, kPeer, EndpointOperation::kPortStatus, 1));
}

TEST_F(MrcRequests, ThereIsNoRoomForEverMore) {
  for (uint32_t i = 0; i < EndpointRequests::kMost; ++i)
    EXPECT_NE(update(2, 0, Ipv4Address{100 + i}), 0u);
  EXPECT_EQ(update(2, 0), 0u);
}

TEST_F(MrcRequests, WhatFindsNoRoomToLeaveIsDueAgain) {
  const uint16_t id = update(2, 0);
  EXPECT_EQ(due(0, false).size(), 0u);
  EXPECT_EQ(due(EndpointRequests::kFirstWaitNs), (std::vector<Sent>{{id, 2}}));
}

TEST_F(MrcRequests, AProbeGoesOnceAndItsOutcomeIsKeptForAWhile) {
  EXPECT_EQ(requests_.outcome(kPeer, 50'000).state, State::kNone);
  const uint16_t id = probe(50'000, 0);
  probe(50'001, 0);
  EXPECT_EQ(requests_.outcome(kPeer, 50'000).state, State::kWaiting);
  EXPECT_EQ(due(1'000).size(), 2u);
  EXPECT_TRUE(requests_.answer(id, kPeer, EndpointOperation::kPathProbe, 6'000));
  EXPECT_FALSE(requests_.answer(id, kPeer, EndpointOperation::kPathProbe, 7'000)) << "a duplicate";
  EXPECT_EQ(requests_.outcome(kPeer, 50'000).state, State::kAnswered);
  EXPECT_EQ(requests_.outcome(kPeer, 50'000).rtt_ns, 5'000u);
  EXPECT_EQ(requests_.outcome(kOther, 50'000).state, State::kNone);
  EXPECT_EQ(requests_.outcome(kPeer, 50'001).state, State::kWaiting);
  EXPECT_EQ(due(1'000 + EndpointRequests::kProbeNs).size(), 0u);
  EXPECT_EQ(requests_.outcome(kPeer, 50'001).state, State::kLost);
  EXPECT_EQ(due(1'000 + EndpointRequests::kProbeNs + EndpointRequests::kKeptNs).size(), 0u);
  EXPECT_EQ(requests_.outcome(kPeer, 50'000).state, State::kNone);
  EXPECT_EQ(requests_.outcome(kPeer, 50'001).state, State::kNone);
  EXPECT_EQ(requests_.next_due_ns(), UINT64_MAX);
}

TEST_F(MrcRequests, ProbesOfAPeerAreForgotten) {
  probe(50'000, 0);
  probe(50'000, 0, kOther);
  update(2, 0);
  requests_.forget_probes(kPeer);
  EXPECT_EQ(requests_.outcome(kPeer, 50'000).state, State::kNone);
  EXPECT_EQ(requests_.outcome(kOther, 50'000).state, State::kWaiting);
  EXPECT_EQ(due(0).size(), 2u);
}

}  // namespace
}  // namespace hostnic::mrc
