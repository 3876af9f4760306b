// SPDX-License-Identifier: BSD-3-Clause
// Lines of `show nic`, `show qp` and `show peers`: scripts read them, so their words stay.
#include "dataplane/daemon/observe/view_text.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace hostnic {
namespace {

TEST(ViewText, Nic) {
  NicView nic;
  nic.name = "hnic0";
  nic.address = "10.0.0.1";
  nic.prefix_length = 24;
  nic.mtu_bytes = 4096;
  nic.window = 1024;
  nic.transport = "auto";
  nic.policy = "selective";
  nic.port = {.kind = PortKind::kWire, .device = "net_ring port 0", .wire_nics = 2};
  nic.clients = 2;
  nic.qps = 3;
  nic.buffers = 100;
  EXPECT_EQ(to_text(nic),
            "hnic0 10.0.0.1/24 mtu 4096 window 1024 transport auto policy selective icrc off "
            "segmentation on clients 2 qps 3 buffers 0/100 port virtual wire, 2 NICs "
            "(net_ring port 0)");
  nic.has_neighbours = true;
  nic.neighbours = 2;
  nic.neighbours_unanswered = 1;
  nic.no_bundles = "the port has none";
  EXPECT_EQ(to_text(nic),
            "hnic0 10.0.0.1/24 mtu 4096 window 1024 transport auto policy selective icrc off "
            "segmentation off (the port has none) clients 2 qps 3 neighbours 2 unanswered 1 "
            "buffers 0/100 port virtual wire, 2 NICs (net_ring port 0)");
}

TEST(ViewText, Port) {
  PortView port{.kind = PortKind::kUdp, .device = "eth0", .mtu_bytes = 1500};
  EXPECT_EQ(to_text(port), "udp on eth0 (MTU 1500, sends packets, receives packets)");
  port.sends_segments = port.receives_coalesced = true;
  port.link_up = false;
  port.socket_full = 3;
  port.refused_by_kernel = 2;
  port.refused_with = EMSGSIZE;
  EXPECT_EQ(to_text(port),
            "udp on eth0 (MTU 1500, sends segments, receives coalesced, link down, 3 packets found "
            "the socket full, the kernel refused 2 packets: Message too long)");
  EXPECT_EQ(to_text(PortView{.kind = PortKind::kEthernet,
                             .device = "net_af_packet0,iface=eth0",
                             .mtu_bytes = 9000,
                             .lost_without_link = 1}),
            "net_af_packet0,iface=eth0 (MTU 9000, 1 packets lost without a link)");
  EXPECT_EQ(to_text(PortView{.kind = PortKind::kEthernet,
                             .device = "0000:3b:00.0",
                             .mtu_bytes = 1500,
                             .missed = 4,
                             .without_buffer = 3,
                             .bad_frames = 2,
                             .not_sent = 1}),
            "0000:3b:00.0 (MTU 1500, 4 packets found the adapter's queue full, 3 packets found no "
            "buffer, 2 frames arrived broken, 1 packets could not leave)");
}

TEST(ViewText, QueuePair) {
  QpView qp;
  qp.qpn = 0x123;
  qp.state = QpState::kRts;
  qp.transport = Transport::kRoce;
  qp.client_id = 7;
  qp.dest_qpn = 0x456;
  qp.mtu_bytes = 1024;
  qp.transmitted = 3;
  qp.una = 0xfffffe;
  qp.heard = true;
  qp.silent_ns = 1'250'000'000;
  qp.rtt_ns = 12'600;
  EXPECT_EQ(to_text("hnic0", qp, "10.0.0.2"),
            "hnic0 qp 0x000123 RC/roce RTS client 7 peer 10.0.0.2:0x000456 mtu 1024 rx-base 0 "
            "ahead 0 tx-next 3 acked 16777214 recv-sn 0 epoch 0 outstanding 5 receives 0 bytes 0 "
            "repeated 0 naks 0 rtt-us 13 heard 1.2 s ago");
  qp.transport = Transport::kHostnic;
  qp.shared_receives = true;
  qp.heard = false;
  qp.request_rate = {.mbps = 5000, .alpha_permille = 1000, .cuts = 3, .recoveries = 0};
  qp.answer_rate = {.mbps = 0, .alpha_permille = 0, .cuts = 6, .recoveries = 1};
  qp.refused_its_peer = true;
  const std::string text = to_text("hnic0", qp, "10.0.0.2");
  EXPECT_NE(text.find(" RC RTS "), std::string::npos) << text;
  EXPECT_NE(text.find(" receives shared "), std::string::npos) << text;
  EXPECT_TRUE(
      text.ends_with("heard never rate 5000 Mb/s alpha 1000/1000 cuts 3 recoveries 0 answer-rate "
                     "unlimited cuts 6 recoveries 1 refused its peer"))
      << text;
}

TEST(ViewText, Peers) {
  PeerView peer;
  peer.nic = "hnic0";
  peer.own = "10.0.0.1";
  peer.peer = "10.0.1.1";
  peer.transport = "hostnic";
  peer.says = "hostnic version 3 policy selective wants auto";
  peer.age_s = 3;
  EXPECT_EQ(to_text(peer),
            "hnic0 from 10.0.0.1 peer 10.0.1.1: hostnic, hostnic version 3 policy selective wants "
            "auto, 3 s ago");
  peer.outdated = true;
  EXPECT_TRUE(to_text(peer).ends_with(", to be asked again"));
  peer.doubted = true;
  EXPECT_TRUE(to_text(peer).ends_with(", doubted"));
  peer.asked = true;
  peer.questions = 1;
  EXPECT_EQ(to_text(peer), "hnic0 from 10.0.0.1 peer 10.0.1.1: asked 1 times");
}

}  // namespace
}  // namespace hostnic
