// SPDX-License-Identifier: BSD-3-Clause
// What is told of a queue pair to another host: to its peer what explains a failure, to others next
// to nothing; and that the same view comes out of it there.
#include "dataplane/daemon/observe/told.h"

#include <gtest/gtest.h>

namespace hostnic {
namespace {

constexpr Asking kAsking{Ipv4Address{0x0a4d0002}, 0x158e8};

QpView connected() {
  QpView qp;
  qp.qpn = 0x991334;
  qp.type = QpType::kRc;
  qp.state = QpState::kRts;
  qp.transport = Transport::kRoce;
  qp.pid = 4321;
  qp.uid = 1000;
  qp.program = "ib_write_bw";
  qp.dest_qpn = kAsking.qpn;
  qp.dest_ip = raw(kAsking.host);
  qp.access = kAccessRemoteRead | kAccessRelaxedOrdering;
  qp.mtu_bytes = 1024;
  qp.rq_psn = 1000;
  qp.expected = 1000;
  qp.sq_psn = 0xfffffe;
  qp.transmitted = 3;
  qp.receives_waiting = 7;
  qp.responder_resources = 16;
  return qp;
}

// The asker's own queue pair.
QpView asker() {
  QpView own;
  own.qpn = kAsking.qpn;
  own.dest_qpn = 0x991334;
  own.source_ip = raw(kAsking.host);
  own.uid = 77;
  return own;
}

// As it arrives, through the datagram.
cm::InquiryAnswer told(const Seen& seen, const Asking& asking = kAsking) {
  cm::InquiryAnswer answer;
  tell(seen, asking, answer);
  const auto heard = cm::inquiry_answer_in(*cm::parse(cm::build(cm::mad_of(answer))));
  EXPECT_TRUE(heard && heard->known);
  return heard ? heard->answer : cm::InquiryAnswer{};
}

TEST(Told, ItsPeerIsToldWhatExplainsAFailure) {
  const auto answer = told({.qp = connected(), .is_stopped = true});
  EXPECT_EQ(answer.standing, cm::Standing::kPeer);
  EXPECT_TRUE(answer.qp.is_stopped);
  const auto qp = told_qp(answer, asker());
  ASSERT_TRUE(qp);
  EXPECT_EQ(qp->qpn, 0x991334u);
  EXPECT_EQ(qp->state, QpState::kRts);
  EXPECT_EQ(qp->transport, Transport::kRoce);
  EXPECT_EQ(qp->dest_qpn, kAsking.qpn);
  EXPECT_EQ(qp->dest_ip, raw(kAsking.host));
  EXPECT_EQ(qp->uid, 77u) << "what is told may be said";
  EXPECT_EQ(qp->pid, 4321u);
  EXPECT_EQ(qp->program, "ib_write_bw");
  EXPECT_EQ(qp->rq_psn, 1000u);
  EXPECT_EQ(qp->expected, 1000u);
  EXPECT_EQ((qp->transmitted - qp->sq_psn) & Psn::kMask, 5u);
  EXPECT_EQ(qp->mtu_bytes, 1024);
  EXPECT_EQ(qp->receives_waiting, 7u);
  EXPECT_EQ(qp->responder_resources, 16u);
  EXPECT_FALSE(qp->refused_its_peer);
}

TEST(Told, OthersAreToldNextToNothing) {
  const auto expect_little = [](const cm::InquiryAnswer& answer) {
    EXPECT_EQ(answer.qp.pid, 0u);
    EXPECT_EQ(answer.qp.program, "");
    EXPECT_EQ(answer.qp.rq_psn, 0u);
    EXPECT_EQ(answer.qp.receives_waiting, 0u);
    EXPECT_EQ(answer.refusal, cm::ToldRefusal{});
  };
  QpView qp = connected();
  qp.refused_its_peer = true;
  qp.refused.key = 0x66c7;
  const auto of_another_host = told({.qp = qp}, {Ipv4Address{0x0a4d0003}, kAsking.qpn});
  EXPECT_EQ(of_another_host.standing, cm::Standing::kOther);
  EXPECT_EQ(of_another_host.qp.dest_qpn, 0u);
  expect_little(of_another_host);
  const auto of_another_number = told({.qp = qp}, {kAsking.host, 5});
  EXPECT_EQ(of_another_number.standing, cm::Standing::kOther);
  EXPECT_EQ(of_another_number.qp.dest_qpn, kAsking.qpn) << "it is on the asker's host";
  expect_little(of_another_number);
  qp.state = QpState::kInit;
  const auto alone = told({.qp = qp});
  EXPECT_EQ(alone.standing, cm::Standing::kAlone);
  EXPECT_EQ(alone.qp.dest_qpn, 0u);
  expect_little(alone);
}

// Numbers and PSNs of connections in use are what a forger has to guess (SECURITY.md).
TEST(Told, OfAConnectionInUseNumbersAndPsnsStayUnknown) {
  QpView qp = connected();
  for (const bool hears : {false, true}) {
    qp.heard = hears;
    qp.expected = hears ? 1000 : 1005;
    const auto to_peer = told({.qp = qp});
    EXPECT_EQ(to_peer.standing, cm::Standing::kPeer);
    EXPECT_FALSE(to_peer.qp.has_psns);
    EXPECT_EQ(to_peer.qp.rq_psn, 0u);
    EXPECT_EQ(to_peer.qp.expected, 0u);
    for (const Asking& other : {Asking{kAsking.host, 5}, Asking{Ipv4Address{0x0a4d0003}, 5}}) {
      const auto answer = told({.qp = qp}, other);
      EXPECT_EQ(answer, told({}, other)) << "as if it were not there";
    }
  }
}

TEST(Told, OneThatWentIsItsPeersAlone) {
  const Seen seen{
      .dead = DeadQpView{.last = connected(), .at_ns = 1'000'000'000, .with_its_program = true},
      .other_qpn = 17,
      .now_ns = 3'500'000'000};
  const auto answer = told(seen);
  EXPECT_EQ(answer.standing, cm::Standing::kGone);
  EXPECT_EQ(answer.qp.gone_ms, 2500u);
  EXPECT_EQ(answer.qp.pid, 4321u);
  EXPECT_TRUE(answer.qp.with_its_program);
  EXPECT_FALSE(told_qp(answer, asker()));
  const auto others = told(seen, {Ipv4Address{0x0a4d0003}, kAsking.qpn});
  EXPECT_EQ(others.standing, cm::Standing::kNone);
  EXPECT_EQ(others.qp.pid, 0u);
  EXPECT_EQ(told({.other_qpn = 17}).qp.other_qpn, 17u);
}

Seen seen_refused(KeyFault fault) {
  Seen seen{.qp = connected()};
  seen.qp->refused_its_peer = true;
  seen.qp->refused_code = wire::NakCode::kRemoteAccess;
  seen.qp->refused = {.opcode = wire::Opcode::kWriteOnly,
                      .key = 0x66c7,
                      .va = 0x7f000001f001,
                      .length_bytes = 4096,
                      .packet_bytes = 1024};
  seen.key.fault = fault;
  seen.key.region_va = 0x7f0000010000;
  seen.key.region_bytes = 65536;
  seen.key.wanted_access = kAccessRemoteWrite;
  seen.key.region_access = kAccessLocalWrite;
  return seen;
}

TEST(Told, ARefusedRequestIsExplained) {
  const auto answer = told(seen_refused(KeyFault::kBounds));
  const auto qp = told_qp(answer, asker());
  ASSERT_TRUE(qp && qp->refused_its_peer);
  EXPECT_EQ(qp->refused_code, wire::NakCode::kRemoteAccess);
  EXPECT_EQ(qp->access, kAccessRemoteRead);
  const KeyView key = told_key(answer.refusal, 0x66c7, 0x7f000001f000, 8192);
  EXPECT_EQ(key.fault, KeyFault::kBounds);
  EXPECT_EQ(key.va, 0x7f000001f000u) << "of the request as it was posted";
  EXPECT_EQ(key.length_bytes, 8192u);
  EXPECT_EQ(key.region_va, 0x7f0000010000u);
  EXPECT_EQ(key.region_bytes, 65536u);
  EXPECT_EQ(told_key(answer.refusal, 0x66c8, 0, 0).fault, KeyFault::kNone)
      << "nothing is known of another key";
}

TEST(Told, ARegionThatTheKeyDoesNotReachStaysUnknown) {
  for (const KeyFault fault : {KeyFault::kUnknown, KeyFault::kDomain, KeyFault::kUnbound,
                               KeyFault::kQpRight, KeyFault::kNone}) {
    const auto answer = told(seen_refused(fault));
    EXPECT_EQ(answer.refusal.region_va, 0u);
    EXPECT_EQ(answer.refusal.region_bytes, 0u);
    EXPECT_EQ(answer.refusal.region_access, 0u);
  }
  EXPECT_EQ(told(seen_refused(KeyFault::kRight)).refusal.region_access, kAccessLocalWrite);
}

}  // namespace
}  // namespace hostnic
