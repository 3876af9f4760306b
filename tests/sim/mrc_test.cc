// SPDX-License-Identifier: BSD-3-Clause
// MRC (docs/mrc.md): what it does with single packets that are lost, late, repeated or wrong, and
// which way they go. Random networks are random_test.cc's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "dataplane/nic/packet/packet.h"
#include "protocol/wire/mrc/packet.h"
#include "tests/sim/mrc_packets.h"
#include "tests/sim/pair.h"

namespace hostnic::sim {
namespace {

using wire::Opcode;
namespace wm = wire::mrc;

constexpr uint32_t kMtu = 4096;

WorldSettings mrc() { return mrc_world(); }
QpSettings from_psn(uint32_t psn) {
  QpSettings qp;
  qp.psn = psn;
  return qp;
}
bool is_write(Opcode opcode) { return is_mrc_write(opcode); }
bool untouched(const Pair& pair, size_t bytes) {
  return equal(pair.remote, 0, Memory(bytes), 0, bytes);
}
bool raised(const Endpoint& end, driver::AsyncEvent event) {
  return std::ranges::any_of(end.host->events, [&](const Event& e) { return e.event == event; });
}

// What a packet on the wire is.
using Seen = SeenMrc;
void watch(Pair& pair, std::function<void(const Seen&)> look) { watch_mrc(pair, std::move(look)); }

// ---- WRITEs

TEST(Mrc, OnlyItsPacketsLeaveAndEachSaysWhereItBelongs) {
  Pair pair(from_psn(0xfffffe), mrc());
  uint32_t foreign = 0, writes = 0;
  std::set<uint64_t> addresses;
  pair.world.wire().set_tap([&](uint32_t, uint32_t, rte_mbuf* packet) {
    const auto opcode = Opcode{rte_pktmbuf_mtod(packet, const uint8_t*)[wire::kFlowBytes]};
    foreign += wire::find_opcode(wire::Dialect::kMrc, opcode) == nullptr ? 1 : 0;
    if (!is_write(opcode)) return;
    wire::Packet p;
    ASSERT_EQ(parse_packet(packet, p), wire::ParseError::kNone);
    const wm::Packet headers = wm::headers_at(p.unread_headers);
    ++writes;
    addresses.insert(headers.reth.va);
    EXPECT_TRUE(headers.has_timestamp);
    EXPECT_EQ(headers.reth.key, pair.rkey);
  });
  pair.post_receive(1, 0, 16);
  pair.post(SendOp::kWrite, 1, pair.at(0, 3 * kMtu), 16 * kMtu);
  pair.post(SendOp::kWriteImm, 2, pair.at(0, 9), 32 * kMtu);
  pair.post(SendOp::kWrite, 3, pair.at(0, 0), 0);
  for (const auto& done : pair.sent(3)) EXPECT_EQ(done.status, WcStatus::kSuccess) << done.wr_id;
  const auto received = pair.received(1);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].imm_data, 0x1234u);
  EXPECT_EQ(received[0].byte_len, 9u);
  EXPECT_EQ(foreign, 0u);
  EXPECT_EQ(writes, 5u);
  EXPECT_EQ(addresses.size(), 5u);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 16 * kMtu, 3 * kMtu));
  pair.world.wire().set_tap(nullptr);
}

TEST(Mrc, OnlyWhatIsMissingGoesAgainByAnotherWay) {
  Pair pair(from_psn(0xfffffa), mrc());
  std::map<uint32_t, std::vector<uint16_t>> ports;
  uint32_t again = 0;
  watch(pair, [&](const Seen& seen) {
    if (!is_write(seen.p.opcode)) return;
    auto& of_psn = ports[seen.p.psn.value()];
    EXPECT_EQ(seen.headers.retransmission, !of_psn.empty());
    again += of_psn.empty() ? 0 : 1;
    of_psn.push_back(seen.p.src_port);
  });
  pair.world.impair(1, "rx drop nth 3 kind write");
  pair.post(SendOp::kWrite, 1, pair.at(0, 40 * kMtu));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 40 * kMtu));
  EXPECT_EQ(again, 1u);
  EXPECT_EQ(pair.near_counter(Counter::retransmitted_packets), 1u);
  const auto& lost = ports[0xfffffc];
  ASSERT_EQ(lost.size(), 2u);
  EXPECT_NE(lost[0], lost[1]);
  pair.world.wire().set_tap(nullptr);
}

TEST(Mrc, ASackIsNoCompletion) {
  Pair pair({}, mrc());
  // The SACKs arrive, transport ACKs don't.
  uint32_t acks = 0, sacks = 0;
  watch(pair, [&](const Seen& seen) {
    acks += seen.p.opcode == Opcode::kMrcAck ? 1 : 0;
    sacks += seen.p.opcode == Opcode::kMrcSack ? 1 : 0;
  });
  pair.world.impair(0, "rx drop nth 2 kind ack");  // behind the SACK of the only packet
  pair.post(SendOp::kWrite, 1, pair.at(0, 100));
  EXPECT_EQ(pair.sent(1, 100 * kMicrosecond).size(), 0u);
  EXPECT_GE(sacks, 1u);
  EXPECT_EQ(acks, 1u);
  EXPECT_EQ(pair.sent(1).size(), 1u) << "the last packet goes again, and brings another ACK";
  EXPECT_GE(pair.far_counter(Counter::duplicate_request), 1u);
  pair.world.wire().set_tap(nullptr);
}

TEST(Mrc, ALostEndIsFoundByTime) {
  Pair pair({}, mrc());
  pair.world.impair(1, "rx drop first 1 kind write");
  pair.post(SendOp::kWrite, 1, pair.at(0, 100));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 100));
}

TEST(Mrc, ReceivesCompleteInTheOrderOfSending) {
  Pair pair({}, mrc());
  // The first message's only packet comes last.
  pair.world.impair(1, "rx drop first 1 kind write");
  for (uint64_t i = 0; i < 8; ++i) pair.post_receive(100 + i, 0, 16);
  for (uint64_t i = 0; i < 8; ++i)
    pair.post(SendOp::kWriteImm, i, pair.at(i * 64, 10 + static_cast<uint32_t>(i)), i * 64);
  const auto received = pair.received(8);
  ASSERT_EQ(received.size(), 8u);
  for (uint32_t i = 0; i < 8; ++i) {
    EXPECT_EQ(received[i].wr_id, 100 + i);
    EXPECT_EQ(received[i].byte_len, 10 + i);
  }
  EXPECT_EQ(pair.sent(8).size(), 8u);
}

// What is in front of immediate data is there when its receive completes.
TEST(Mrc, ImmediateDataWaitsForWhatIsBeforeIt) {
  Pair pair({}, mrc());
  pair.world.impair(1, "rx drop first 1 kind write");
  pair.post_receive(7, 8 * kMtu, 16);
  pair.post(SendOp::kWrite, 1, pair.at(0, 100));
  pair.post(SendOp::kWriteImm, 2, pair.at(200, 9), 200);
  EXPECT_EQ(pair.received(1, 2 * kMicrosecond).size(), 0u);
  EXPECT_EQ(pair.far_counter(Counter::reorder_buffered), 1u);
  const auto received = pair.received(1);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].wr_id, 7u);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 100));
  EXPECT_EQ(pair.sent(2).size(), 2u);
}

TEST(Mrc, ADuplicateChangesNothing) {
  Pair pair({}, mrc());
  pair.world.impair(1, "rx duplicate all kind write");
  for (uint64_t i = 0; i < 8; ++i) pair.post_receive(100 + i, 0, 16);
  for (uint64_t i = 0; i < 8; ++i) pair.post(SendOp::kWriteImm, i, pair.at(0, 3 * kMtu), 0);
  EXPECT_EQ(pair.sent(8).size(), 8u);
  EXPECT_EQ(pair.received(9, kMillisecond).size(), 8u);
  EXPECT_GT(pair.far_counter(Counter::duplicate_request), 0u);
}

// The smallest window, whose edges wrap: each message is longer than it.
TEST(Mrc, WindowsAndNumbersWrap) {
  for (const uint32_t psn : {0u, 0xffffffu, 0xffff80u, 0xfffff0u}) {
    WorldSettings settings = mrc();
    settings.windows = {128};
    settings.mtu_bytes = 256;
    QpSettings qp = from_psn(psn);
    Pair pair(qp, settings);
    pair.world.impair(1, "rx drop 5%; reorder 10% distance 40", psn);
    for (uint64_t i = 0; i < 4; ++i)
      pair.post(SendOp::kWrite, i, pair.at(i * 100'000, 100'000), i * 100'000);
    EXPECT_EQ(pair.sent(4).size(), 4u) << psn;
    EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 400'000)) << psn;
    EXPECT_EQ(pair.far_counter(Counter::out_of_window), 0u) << psn;
  }
}

// Of two NICs with windows of different size the smaller one counts.
TEST(Mrc, APeersSmallerWindowIsHeeded) {
  WorldSettings settings = mrc();
  settings.windows = {1024, 128};
  Pair pair({}, settings);
  pair.world.impair(1, "rx drop 3%", 7);
  for (uint64_t i = 0; i < 4; ++i) pair.post(SendOp::kWrite, i, pair.at(0, 200 * kMtu));
  EXPECT_EQ(pair.sent(4).size(), 4u);
  EXPECT_EQ(pair.far_counter(Counter::out_of_window), 0u);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 200 * kMtu));
}

// ---- what is refused

TEST(Mrc, WhatIsNoWriteIsRefusedWhenItIsPosted) {
  Pair pair({}, mrc());
  for (const SendOp op : {SendOp::kSend, SendOp::kSendImm, SendOp::kSendInv, SendOp::kRead,
                          SendOp::kFetchAdd, SendOp::kCompareSwap, SendOp::kLocalInvalidate})
    EXPECT_EQ(pair.post(op, 1, pair.at(0, 8)), EOPNOTSUPP) << static_cast<int>(op);
  pair.post(SendOp::kWrite, 2, pair.at(0, 8));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
}

TEST(Mrc, AWrongKeyFailsTheRequestAndBothEnds) {
  for (const uint64_t before : {0, 3}) {
    Pair pair({}, mrc());
    for (uint64_t i = 0; i < before; ++i) pair.post(SendOp::kWrite, i, pair.at(0, 9));
    pair.post_to(SendOp::kWrite, before, pair.at(0, 3 * kMtu), pair.remote.address(64 * kMtu),
                 pair.rkey ^ 0x100);
    pair.post(SendOp::kWrite, before + 1, pair.at(0, 9), 128 * kMtu);
    const auto done = pair.sent(before + 2);
    ASSERT_EQ(done.size(), before + 2);
    for (uint64_t i = 0; i < before; ++i) EXPECT_EQ(done[i].status, WcStatus::kSuccess);
    EXPECT_EQ(done[before].status, WcStatus::kRemAccessErr);
    EXPECT_EQ(done[before + 1].status, WcStatus::kWrFlushErr);
    pair.world.run_until([] { return false; }, kMillisecond, false);
    EXPECT_TRUE(raised(*pair.far, driver::AsyncEvent::kQpAccessErr));
    EXPECT_EQ(pair.far->state(), QpState::kErr);
  }
}

TEST(Mrc, ANakThatIsLostIsSaidAgain) {
  Pair pair({}, mrc());
  pair.world.impair(0, "rx drop first 2 kind ack");
  pair.post_to(SendOp::kWrite, 1, pair.at(0, 9), pair.remote.address(0), pair.rkey ^ 0x100);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kRemAccessErr);
}

TEST(Mrc, TooFewReceivesEndTheConnection) {
  Pair pair({}, mrc());
  pair.post_receive(1, 0, 16);
  pair.post(SendOp::kWriteImm, 1, pair.at(0, 9));
  pair.post(SendOp::kWriteImm, 2, pair.at(0, 9));
  const auto done = pair.sent(2);
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kRemOpErr);
  pair.world.run_until([] { return false; }, kMillisecond, false);
  EXPECT_EQ(pair.far->state(), QpState::kErr);
}

TEST(Mrc, APeerThatIsSilentIsGivenUp) {
  QpSettings qp;
  qp.timeout = 14;  // 16.8 ms: 369 ms in all with retry_cnt 7
  qp.retry_cnt = 7;
  Pair pair(qp, mrc());
  pair.world.cut(1, true);
  const TimeNs start = pair.world.now();
  pair.post(SendOp::kWrite, 1, pair.at(0, 9));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kRetryExcErr);
  const uint64_t took_ns = pair.world.now() - start;
  EXPECT_GE(took_ns, 369 * kMillisecond);
  EXPECT_LE(took_ns, 420 * kMillisecond);
}

// ---- what programs say by libmrc.so

// The PSNs that the far end's NIC is sent, whatever becomes of them.
std::set<uint32_t> psns_sent_in(Pair& pair, uint64_t duration_ns) {
  std::set<uint32_t> psns;
  watch(pair, [&](const Seen& seen) {
    if (is_write(seen.p.opcode)) psns.insert(seen.p.psn.value());
  });
  pair.world.run_until([] { return false; }, duration_ns, /*idle_is_a_bug=*/false);
  watch(pair, [](const Seen&) {});
  return psns;
}

TEST(Mrc, NoMoreImmediateDataIsOnItsWayThanAgreedUpon) {
  QpSettings qp;
  qp.mrc.max_imm = 3;
  Pair pair(qp, mrc());
  for (uint64_t i = 0; i < 10; ++i) pair.post_receive(i, 0, 16);
  pair.world.impair(0, "rx drop 100%");
  for (uint64_t i = 0; i < 10; ++i) pair.post(SendOp::kWriteImm, i, pair.at(0, 9));
  EXPECT_EQ(psns_sent_in(pair, 5 * kMillisecond).size(), 3u);
  pair.world.impair(0, "");
  const auto done = pair.sent(10);
  ASSERT_EQ(done.size(), 10u);
  for (uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(done[i].status, WcStatus::kSuccess);
    EXPECT_EQ(done[i].wr_id, i);
  }
  EXPECT_EQ(pair.received(10).size(), 10u);
}

TEST(Mrc, AProgramsWindowIsHeeded) {
  for (const uint8_t mpr : {0, 1}) {
    QpSettings qp;
    qp.mrc.mpr = mpr;
    Pair pair(qp, mrc());
    pair.post(SendOp::kWrite, 1, pair.at(0, 9));  // the peer's window is known now
    ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess);
    pair.world.impair(0, "rx drop 100%");
    pair.post(SendOp::kWrite, 2, pair.at(0, 200 * kMtu));
    EXPECT_EQ(psns_sent_in(pair, 5 * kMillisecond).size(), mpr == 0 ? 200u : 128u);
    pair.world.impair(0, "");
    EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
    EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 200 * kMtu));
  }
}

TEST(Mrc, ExponentialRetriesAreTheProgramsToChoose) {
  QpSettings qp;  // timeout 14: 16.8 ms, eight times
  qp.mrc.exponential_retries = 0;
  Pair pair(qp, mrc());
  pair.world.cut(1, true);
  const TimeNs start = pair.world.now();
  pair.post(SendOp::kWrite, 1, pair.at(0, 9));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kRetryExcErr);
  EXPECT_GE(pair.world.now() - start, 134 * kMillisecond);
  EXPECT_LE(pair.world.now() - start, 170 * kMillisecond);

  qp.mrc.exponential_retries = 25;  // for ever
  Pair patient(qp, mrc());
  patient.world.cut(1, true);
  patient.post(SendOp::kWrite, 1, patient.at(0, 9));
  EXPECT_TRUE(patient.sent(1, 3 * kSecond).empty());
  patient.world.cut(1, false);
  EXPECT_EQ(patient.status_of_one(), WcStatus::kSuccess);
}

// Of a NIC that speaks MRC and one that doesn't neither takes what the other sends.
TEST(Mrc, APeerWithAnotherTransportIsNotHeard) {
  WorldSettings settings = mrc();
  settings.roce_hosts = {1};
  settings.told_of_roce = false;
  Pair pair({}, settings);
  pair.post(SendOp::kWrite, 1, pair.at(0, 64));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kRetryExcErr);
  EXPECT_TRUE(untouched(pair, 64));
  EXPECT_GT(pair.far_counter(Counter::rx_wrong_service), 0u);
}

// ---- forged packets

TEST(Mrc, NothingIsPlacedWithoutAKeyOrFromElsewhere) {
  struct Case {
    uint32_t psn_ahead, key_change, source_host;
  };
  for (const Case& c : {Case{0, 0x100, 0}, Case{5, 0x100, 0}, Case{0, 0, 2}, Case{5, 0, 2},
                        Case{5000, 0, 0}, Case{0xffffff, 0, 0}}) {
    WorldSettings settings = mrc();
    settings.hosts = 3;
    Pair pair(from_psn(1000), settings);
    forge_mrc(pair, forged_mrc_write(pair, 1000 + c.psn_ahead, pair.rkey ^ c.key_change),
              {.source_host = c.source_host});
    EXPECT_TRUE(untouched(pair, 64)) << c.psn_ahead << " " << c.key_change << " " << c.source_host;
  }
  Pair pair(from_psn(1000), mrc());
  forge_mrc(pair, forged_mrc_write(pair, 1000, pair.rkey));
  EXPECT_FALSE(untouched(pair, 64)) << "what the others lack is the key, or the address";
}

// Answers to a requester that has sent something, about what has not left, or has been answered.
TEST(Mrc, ForgedAnswersOfWhatNeverLeftChangeNothing) {
  Pair pair(from_psn(1000), mrc());
  pair.post(SendOp::kWrite, 1, pair.at(0, kMtu));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  for (const uint32_t psn : {999u, 1001u, 1002u, 2000u, 1000u + (1u << 23)}) {
    wm::Packet ack;
    ack.opcode = wm::Opcode::kAck;
    ack.psn = Psn(psn);
    ack.aeth = {wire::AckKind::kAck, wm::kNoCreditLimit, 0};
    forge_mrc(pair, ack, {.source_host = 1, .to_near = true});
    wm::Packet sack;
    sack.opcode = wm::Opcode::kSack;
    sack.seth.cumulative_psn = sack.psn = Psn(psn);
    sack.seth.bitmap = ~uint64_t{0};
    sack.seth.sack_offset = 1;
    forge_mrc(pair, sack, {.source_host = 1, .to_near = true});
    wm::Packet nack;
    nack.opcode = wm::Opcode::kNack;
    nack.neth.psn = nack.psn = Psn(psn);
    nack.neth.reason = wm::NackReason::kUnexpectedEvent;
    forge_mrc(pair, nack, {.source_host = 1, .to_near = true});
  }
  wm::Packet probe;
  probe.opcode = wm::Opcode::kProbe;
  for (int i = 0; i < 20; ++i) forge_mrc(pair, probe);
  // The next WRITE is lost for a while: no answer has been taken for one of its packets.
  pair.world.impair(1, "rx drop all kind write");
  pair.post(SendOp::kWrite, 2, pair.at(0, 3 * kMtu), 8 * kMtu);
  EXPECT_EQ(pair.sent(1, kMillisecond).size(), 0u);
  pair.world.impair(1, "rx none");
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 8 * kMtu, 3 * kMtu));
}

// ---- paths

TEST(Mrc, PacketsGoByAllPathsInTurn) {
  Pair pair({}, mrc());
  std::map<uint16_t, uint32_t> packets;
  watch(pair, [&](const Seen& seen) {
    if (is_write(seen.p.opcode)) ++packets[seen.p.src_port];
  });
  pair.post(SendOp::kWrite, 1, pair.at(0, 64 * kMtu));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_EQ(packets.size(), 16u);
  for (const auto& [port, count] : packets) EXPECT_EQ(count, 4u) << port;
  pair.world.wire().set_tap(nullptr);
}

// The path of a packet that nobody answers is left alone until a probe has come back by it.
TEST(Mrc, ASilentPathIsProbedAndComesBack) {
  Pair pair({}, mrc());
  for (uint64_t i = 0; i < 4; ++i) {
    pair.post(SendOp::kWrite, i, pair.at(0, 4 * kMtu));
    EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  }
  pair.world.impair(1, "rx drop first 4 kind write");
  pair.post(SendOp::kWrite, 9, pair.at(0, 8));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_GE(pair.near_counter(Counter::mrc_paths_lost), 1u);
  for (uint64_t i = 0; i < 64; ++i) {
    pair.post(SendOp::kWrite, i, pair.at(0, 100 * kMtu));
    EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  }
  EXPECT_GE(pair.near_counter(Counter::mrc_probes_sent), 1u);
  EXPECT_EQ(pair.near_counter(Counter::mrc_paths_regained),
            pair.near_counter(Counter::mrc_paths_lost));
}

// A packet that the network has marked says so of its path, and its path is left out once.
TEST(Mrc, AMarkedPathIsLeftOutOnce) {
  Pair pair({}, mrc());
  uint32_t skipped = 0;
  watch(pair, [&](const Seen& seen) {
    skipped +=
        seen.p.opcode == Opcode::kMrcSack && seen.headers.seth.mark == wm::PathMark::kSkipOnce ? 1
                                                                                               : 0;
  });
  pair.world.impair(1, "rx mark 20% kind write", 3);
  for (uint64_t i = 0; i < 8; ++i) pair.post(SendOp::kWrite, i, pair.at(0, 64 * kMtu));
  EXPECT_EQ(pair.sent(8).size(), 8u);
  EXPECT_GT(skipped, 50u) << "each marked packet is told of, of 512";
  EXPECT_EQ(pair.near_counter(Counter::mrc_paths_lost), 0u);
  pair.world.wire().set_tap(nullptr);
}

// Marks and a queue that grows make the congestion window smaller; without them it opens again.
TEST(Mrc, TheCongestionWindowFollowsAQueue) {
  WorldSettings settings = mrc();
  settings.link.gigabits = 1;
  Pair pair({}, settings);
  const QpStatus& status = pair.near->host->channel().qp_status(0);
  pair.post(SendOp::kWrite, 0, pair.at(0, kMtu));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  const uint32_t before = status.window_psns;
  EXPECT_EQ(before, 1024u);
  pair.world.impair(1, "rx mark all kind write");
  for (uint64_t i = 0; i < 32; ++i) pair.post(SendOp::kWrite, i, pair.at(0, 60 * kMtu));
  EXPECT_EQ(pair.sent(32).size(), 32u);
  EXPECT_LT(status.window_psns, before / 2);
  const uint32_t least = status.window_psns;
  pair.world.impair(1, "rx none");
  for (uint64_t i = 0; i < 200; ++i) {
    pair.post(SendOp::kWrite, i, pair.at(0, 60 * kMtu));
    EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  }
  EXPECT_GT(status.window_psns, least);
}

}  // namespace
}  // namespace hostnic::sim
