// SPDX-License-Identifier: BSD-3-Clause
// docs/transport.md rules 20, 21, 22 and 34: what a NIC tells its peer and its driver, and when.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/sim/pair.h"
#include "tests/sim/recorder.h"

namespace hostnic::sim {
namespace {

using wire::Opcode;
constexpr uint32_t kMtu = 4096;

TEST(Rules, Rule20_OneAckPerBurst) {
  WorldSettings settings;
  settings.link.gigabits = 100'000;
  Pair pair({}, settings);
  // All in one burst, and each asks for an ACK.
  for (uint64_t i = 0; i < 8; ++i) pair.post(SendOp::kWrite, i, pair.at(0, 8), i * 8);
  ASSERT_EQ(pair.sent(8).size(), 8u);
  EXPECT_EQ(pair.far_counter(Counter::acks_sent), 1u);
}

TEST(Rules, Rule20_UnaskedEvery64Packets) {
  Pair pair;
  pair.post(SendOp::kWrite, 1, pair.at(0, 8));  // the whole window may be used now
  ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  Recorder sent(pair.world);
  pair.post(SendOp::kWrite, 2, pair.at(0, 250 * kMtu));
  ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  Psn base(1);
  for (const SentPacket& ack : sent.acks_of(1)) {
    EXPECT_LE(distance(base, ack.headers.sack.base), 66);
    base = ack.headers.sack.base;
  }
  EXPECT_EQ(base, Psn(251));
  uint32_t asked = 0;
  for (const SentPacket& p : sent.of(0, Opcode::kWriteOnly)) asked += p.headers.ack_request;
  EXPECT_LT(asked, 3u) << "the sender asked for hardly any of them";
}

TEST(Rules, Rule20_AHoleAndADuplicateAreToldAtOnceWithTheirEcho) {
  WorldSettings settings;
  settings.link.gigabits = 1;  // a packet a turn
  Pair pair({}, settings);
  Recorder sent(pair.world);
  pair.world.impair(1, "rx drop nth 3 kind write; duplicate nth 3 kind write");
  pair.post(SendOp::kWrite, 1, pair.at(0, 12 * kMtu));
  ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  const auto acks = sent.acks_of(1);
  ASSERT_GE(acks.size(), 2u);
  const wire::Sack& first = acks[0].headers.sack;
  EXPECT_EQ(first.base, Psn(2));
  EXPECT_EQ(first.echo_psn, Psn(3));
  EXPECT_TRUE(first.echo_valid && first.echo_duplicate)
      << "the packet behind the hole and its duplicate came in one burst";
  EXPECT_EQ(acks[0].sack, std::vector<uint64_t>{2});
  // The lost one went again: its ACK names that attempt.
  bool named = false;
  for (const SentPacket& ack : acks) {
    const wire::Sack& sack = ack.headers.sack;
    named = named || (sack.echo_psn == Psn(2) && sack.echo_attempt == 1);
  }
  EXPECT_TRUE(named);
}

TEST(Rules, Rule20_TheEchoTellsTheRoundTrip) {
  WorldSettings settings;
  settings.link.delay_ns = 70'000;
  Pair pair({}, settings);
  pair.world.impair(1, "rx drop nth 1 kind write");
  pair.post(SendOp::kWrite, 1, pair.at(0, 8));
  ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  // Of the attempt that arrived: the first one left long before.
  const QpStatus& status = pair.near->host->channel().qp_status(0);
  EXPECT_EQ(status.rtt_count, 1u);
  EXPECT_GE(status.rtt_ns, 140'000u);
  EXPECT_LT(status.rtt_ns, 160'000u);
}

// A timeout repeats the front, and pulls the answer of an atomic far behind it by a request like
// the one that probed.
TEST(Rules, Rule20_APulledAnswerIsNoRoundTrip) {
  Pair pair;
  pair.world.impair(0, "rx drop all");
  pair.world.impair(1, "rx drop all kind write");
  pair.post(SendOp::kWrite, 1, pair.at(0, 40 * kMtu));
  pair.post(SendOp::kFetchAdd, 2, pair.at(256 * 1024, 8), 256 * 1024);
  pair.world.run_for(6 * kMillisecond);  // the probe's answer is lost, too
  pair.world.impair(0, "rx none");
  pair.world.impair(1, "rx none");
  const QpStatus& status = pair.near->host->channel().qp_status(0);
  uint32_t longest_ns = 0;
  for (int i = 0; i < 8'000; ++i) {
    pair.world.run_for(kMicrosecond);
    longest_ns = std::max(longest_ns, status.rtt_ns);
  }
  EXPECT_EQ(pair.sent(2).size(), 2u);
  EXPECT_GT(longest_ns, 0u);
  EXPECT_LT(longest_ns, kMillisecond);
}

// Few of them ask for an ACK, and nobody waits for those that are not sent.
TEST(Rules, Rule20_AnswersAcknowledge) {
  for (const SendOp op : {SendOp::kRead, SendOp::kFetchAdd}) {
    Pair pair;
    const auto bytes = op == SendOp::kRead ? 2 * kMtu : 8;
    pair.post(SendOp::kWrite, 0, pair.at(0, 8));  // its ACK tells the round trip
    ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess);
    Recorder sent(pair.world);
    for (uint64_t i = 1; i <= 32; ++i) {
      // What is before it goes unsignalled, and is acknowledged with it.
      pair.post(SendOp::kWrite, 100 + i, pair.at(i * 64, 64), 4096 + i * 64, /*signalled=*/false);
      pair.post(op, i, pair.at(65536 + i * bytes, bytes));
    }
    const auto done = pair.sent(32);
    ASSERT_EQ(done.size(), 32u);
    for (uint64_t i = 0; i < 32; ++i) {
      EXPECT_EQ(done[i].wr_id, i + 1);
      EXPECT_EQ(done[i].status, WcStatus::kSuccess);
    }
    uint32_t asked = 0, requests = 0;
    for (const SentPacket& p :
         sent.of(0, op == SendOp::kRead ? Opcode::kReadRequest : Opcode::kFetchAdd)) {
      ++requests;
      asked += p.headers.ack_request;
    }
    EXPECT_EQ(requests, 32u);
    EXPECT_LE(asked, 4u);
    EXPECT_EQ(pair.near->host->driver().counters().probes, 0u);
    EXPECT_EQ(pair.near_counter(Counter::retransmitted_packets), 0u);
  }
}

// The ACK that says how much further the peer's window reaches may be lost with no packet under way
// that would bring another.
TEST(Rules, Rule20_AnswersOpenTheWindow) {
  WorldSettings settings;
  settings.windows = {1024, 32};
  Pair pair({}, settings);
  pair.post(SendOp::kWrite, 0, pair.at(0, 8));
  ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  pair.world.impair(0, "rx drop kind ack");
  for (uint64_t i = 1; i <= 4; ++i) {
    pair.post(SendOp::kWrite, 100 + i, pair.at(0, 31 * kMtu), 0, /*signalled=*/false);
    pair.post(SendOp::kRead, i, pair.at(512 * 1024, 8));
    ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess) << i;
  }
  EXPECT_EQ(pair.near->host->driver().counters().probes, 0u);
}

TEST(Rules, Rule21_OneReportPerQpIsOutstanding) {
  Pair pair;
  for (uint64_t i = 0; i < 20; ++i) pair.post_receive(i, 0, kMtu);
  pair.far->host->stopped_until_ns = pair.world.now() + 10 * kMillisecond;
  const uint64_t before = pair.far_counter(Counter::meta_reports);
  for (uint64_t i = 0; i < 20; ++i) {
    pair.post(SendOp::kSend, i, pair.at(0, 100));
    ASSERT_EQ(pair.sent(1).size(), 1u);
  }
  EXPECT_EQ(pair.far_counter(Counter::meta_reports), before + 1);
  const auto received = pair.received(20, 20 * kMillisecond);
  ASSERT_EQ(received.size(), 20u) << "but all is in the status and the completion ring";
  for (uint64_t i = 0; i < 20; ++i) EXPECT_EQ(received[i].wr_id, i);
}

TEST(Rules, Rule21_AFullMetaRingLosesNothing) {
  Pair pair;
  pair.post_receive(1, 0, kMtu);
  pair.far->host->stopped_until_ns = pair.world.now() + 10 * kMillisecond;
  ClientChannel& channel = pair.far->host->channel();
  const MetaReport about_nobody{UINT32_MAX, 0, {}};
  while (channel.metas.enqueue_bulk(&about_nobody, 1)) {
  }
  pair.post(SendOp::kSend, 1, pair.at(0, 100));
  EXPECT_EQ(pair.sent(1, kMillisecond).size(), 1u) << "the ring's reader holds up nobody else";
  EXPECT_EQ(pair.received(1, 20 * kMillisecond).size(), 1u);
}

TEST(Rules, Rule21_APlainWriteReportsNothingToItsResponder) {
  Pair pair;
  const uint64_t before = pair.far_counter(Counter::meta_reports);
  pair.world.impair(1, "rx drop nth 5 kind write; reorder nth 9 distance 4");
  pair.post(SendOp::kWrite, 1, pair.at(0, 64 * kMtu));
  ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_EQ(pair.far_counter(Counter::meta_reports), before);
}

TEST(Rules, Rule21_ANakStaysUntilTheBasePassesIt) {
  QpSettings qp;
  qp.min_rnr_timer = 1;
  Pair pair(qp);
  // While the program is stopped a NAK comes, and then an ACK that says nothing of it.
  pair.near->host->stopped_until_ns = pair.world.now() + 300 * kMicrosecond;
  pair.post(SendOp::kSend, 1, pair.at(0, 100));
  pair.world.run_for(50 * kMicrosecond);
  ASSERT_EQ(pair.near_counter(Counter::rnr_nak_received), 1u);
  ASSERT_EQ(pair.post_receive(1, 0, kMtu), 0);
  pair.world.run_for(50 * kMicrosecond);
  ASSERT_EQ(pair.near_counter(Counter::acks_received), 2u) << "the new credit";
  EXPECT_EQ(pair.sent(1).size(), 1u);
  EXPECT_EQ(pair.near->host->driver().counters().probes, 0u);
}

// A copy of a packet, as it may arrive once more, or changed.
rte_mbuf* remade(rte_mbuf* packet, const std::function<void(wire::Packet&)>& change) {
  wire::Packet p;
  const auto* bytes = rte_pktmbuf_mtod(packet, const std::byte*);
  EXPECT_EQ(wire::parse({bytes, packet->data_len}, packet->pkt_len, false, p),
            wire::ParseError::kNone);
  rte_mbuf* copy = copy_packet(packet, packet->pool);
  if (copy == nullptr) return nullptr;
  change(p);
  const auto flow = wire::make_flow_template({}, {}, p.src_ip, p.dst_ip, p.src_port, 0);
  std::array<uint64_t, 1> words{};
  wire::build(flow, p, false, words, {rte_pktmbuf_mtod(copy, std::byte*), wire::kMaxHeaderBytes});
  return copy;
}

TEST(Rules, Rule22_StaleAndImpossibleAcksChangeNothing) {
  QpSettings qp;
  qp.psn = 0xfffffe;
  Pair pair(qp);
  rte_mbuf *stale = nullptr, *ahead = nullptr, *far_ahead = nullptr;
  pair.world.wire().set_tap([&](uint32_t from, uint32_t, rte_mbuf* packet) {
    if (from != 1 || stale != nullptr) return;
    const auto base_at = [packet](uint32_t base) {
      return remade(packet, [base](wire::Packet& p) {
        p.psn = p.sack.base = Psn(base);
        p.sack.highest_acceptable = p.sack.base + 1023;
      });
    };
    stale = base_at(0xffffff);
    ahead = base_at(8);
    far_ahead = base_at(0x900000);
  });
  pair.post(SendOp::kWrite, 1, pair.at(0, 2 * kMtu));
  ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  pair.world.wire().set_tap(nullptr);
  ASSERT_NE(far_ahead, nullptr);
  // PSNs 0 to 3 are on their way and get lost; una is 0, next is 4.
  pair.world.cut(1, true);
  pair.post(SendOp::kWrite, 2, pair.at(0, 4 * kMtu), 64 * kMtu);
  pair.world.run_for(20 * kMicrosecond);
  for (rte_mbuf* ack : {stale, ahead, far_ahead}) pair.world.wire().inject(0, ack);
  pair.world.run_for(100 * kMicrosecond);
  EXPECT_EQ(pair.near_counter(Counter::acks_received), 4u);
  EXPECT_EQ(pair.near->host->channel().qp_status(0).una_psn, 0u) << "the NIC's half";
  EXPECT_TRUE(pair.sent(1, kMicrosecond).empty());
  EXPECT_EQ(driver::packets_in_flight(*pair.near->qp), 4u);
  pair.world.cut(1, false);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 64 * kMtu, 4 * kMtu));
}

// Somebody who knows all of a connection but the peer's number: what he says is not heard.
TEST(Connections, OnlyThePeersQueuePairIsHeard) {
  Pair pair;
  const auto from_another = [](rte_mbuf* packet) {
    return remade(packet, [](wire::Packet& p) {
      p.src_qpn = Qpn{raw(p.src_qpn) ^ 0x10000};  // another generation of it
      if (p.opcode == wire::Opcode::kAck) p.sack.base = p.psn = Psn(3);
    });
  };
  rte_mbuf *send = nullptr, *read = nullptr, *ack = nullptr;
  pair.world.wire().set_tap([&](uint32_t from, uint32_t, rte_mbuf* packet) {
    const auto opcode = wire::Opcode{rte_pktmbuf_mtod(packet, const uint8_t*)[wire::kFlowBytes]};
    rte_mbuf*& copy = opcode == wire::Opcode::kSend          ? send
                      : opcode == wire::Opcode::kReadRequest ? read
                                                             : ack;
    if (copy == nullptr && from == (opcode == wire::Opcode::kAck ? 1u : 0u))
      copy = from_another(packet);
  });
  pair.post_receive(1, 0, kMtu);
  pair.world.cut(1, true);
  pair.post(SendOp::kSend, 1, pair.at(0, 100));
  pair.post(SendOp::kRead, 2, pair.at(kMtu, 100), kMtu);
  pair.world.run_for(10 * kMicrosecond);
  ASSERT_NE(send, nullptr);
  ASSERT_NE(read, nullptr);
  for (rte_mbuf* packet : {send, read}) pair.world.wire().inject(1, packet);
  pair.world.run_for(10 * kMicrosecond);
  EXPECT_EQ(pair.far_counter(Counter::rx_wrong_tag), 2u);
  EXPECT_TRUE(equal(pair.remote, 0, Memory(100), 0, 100)) << "a byte was placed";
  EXPECT_TRUE(pair.received(1, 10 * kMicrosecond).empty());
  pair.world.cut(1, false);
  EXPECT_EQ(pair.sent(2).size(), 2u);
  // An ACK of what has not arrived would be a lie that nobody notices.
  ASSERT_NE(ack, nullptr);
  pair.world.cut(1, true);
  pair.post(SendOp::kWrite, 3, pair.at(0, 100), 64 * kMtu);
  pair.world.run_for(10 * kMicrosecond);
  pair.world.wire().set_tap(nullptr);
  pair.world.wire().inject(0, ack);
  pair.world.run_for(10 * kMicrosecond);
  EXPECT_EQ(pair.near_counter(Counter::rx_wrong_tag), 1u);
  EXPECT_TRUE(pair.sent(1, 10 * kMicrosecond).empty()) << "nothing has arrived";
  pair.world.cut(1, false);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 64 * kMtu, 100));
}

// The far driver does nothing for so long, with so many receives posted.
struct FarDriverStopped {
  static constexpr uint64_t kStoppedNs = 10 * kMillisecond;

  explicit FarDriverStopped(int receives = 1) {
    for (int id = 1; id <= receives; ++id) pair.post_receive(static_cast<uint64_t>(id), 0, kMtu);
    pair.world.run_for(kMillisecond);
    start_ns = pair.world.now();
    far.stopped_until_ns = start_ns + kStoppedNs;
    wakeups_before = far.counter(Counter::driver_wakeups);
  }
  uint64_t wakeups() const { return far.counter(Counter::driver_wakeups) - wakeups_before; }

  Pair pair;
  Host& far = *pair.far->host;
  SegmentHeader& header = far.channel().header();
  TimeNs start_ns = 0;
  uint64_t wakeups_before = 0;
};

// The driver's service thread sleeps. How long after the post of a SEND is it woken for the
// receive?
uint64_t woken_after_ns(uint32_t armed_cqs, uint64_t polling_for_ns, uint64_t takes_one_at_ns = 0) {
  FarDriverStopped stopped;
  Pair& pair = stopped.pair;
  SegmentHeader& header = stopped.header;
  const TimeNs start_ns = stopped.start_ns;
  header.driver_sleeping.store(1);
  header.armed_cqs.store(armed_cqs);
  header.polling_until_ns.store(start_ns + polling_for_ns);
  pair.post(SendOp::kSend, 1, pair.at(0, 100));
  // Which one, and how many are left, is no matter: the position of whoever takes reports moves.
  std::atomic<uint32_t>& taken = header.rings[kMetaRing].consumer;
  const uint32_t taken_before = taken.load();
  if (takes_one_at_ns != 0) {
    pair.world.run_for(takes_one_at_ns);
    taken.store(taken_before - 1);
  }
  EXPECT_TRUE(pair.world.run_until([&] { return stopped.wakeups() != 0; }, 5 * kMillisecond));
  taken.store(taken_before);
  const uint64_t woken_ns = pair.world.now() - start_ns;
  header.driver_sleeping.store(0);
  header.armed_cqs.store(0);
  EXPECT_EQ(pair.received(1, 20 * kMillisecond).size(), 1u);
  return woken_ns;
}

TEST(Rules, Rule34_ANappingPollerIsWokenWhenTheNicHasReportedAndIsIdle) {
  Pair pair;
  pair.post_receive(1, 0, kMtu);
  Host& far = *pair.far->host;
  SegmentHeader& header = far.channel().header();
  pair.world.run_for(kMillisecond);
  header.poller_naps.store(1);
  header.polling_until_ns.store(pair.world.now() + 10 * kMillisecond);
  pair.world.run_for(kMillisecond);
  EXPECT_EQ(header.poller_naps.load(), 1u) << "nothing was reported";
  far.stopped_until_ns = pair.world.now() + 10 * kMillisecond;
  pair.post(SendOp::kSend, 1, pair.at(0, 100));
  EXPECT_TRUE(pair.world.run_until([&] { return header.poller_naps.load() == 0; }, kMillisecond));
  EXPECT_EQ(pair.received(1, 20 * kMillisecond).size(), 1u);
}

TEST(Rules, Rule34_ASleepingDriverIsWokenAtOnceOrAfter50Us) {
  EXPECT_LT(woken_after_ns(/*armed_cqs=*/1, /*polling_for_ns=*/50'000), 10'000u) << "armed";
  EXPECT_LT(woken_after_ns(0, 0), 10'000u) << "nobody polls";
  const uint64_t polled = woken_after_ns(0, 50'000);
  EXPECT_GE(polled, 50'000u) << "the program polls, and may find it";
  EXPECT_LT(polled, 60'000u);
}

TEST(Rules, Rule34_APollerThatYieldsAndDoesNotComeBackIsHelpedBeforeItIsGivenUp) {
  const uint64_t yielded = woken_after_ns(/*armed_cqs=*/0, /*polling_for_ns=*/5'000'000);
  EXPECT_GE(yielded, 50'000u) << "others may work on its core for a moment";
  EXPECT_LT(yielded, 60'000u);
  const uint64_t takes_some = woken_after_ns(0, 5'000'000, /*takes_one_at_ns=*/40'000);
  EXPECT_GE(takes_some, 90'000u) << "it is there, and behind";
  EXPECT_LT(takes_some, 100'000u);
}

// A driver that has been woken and has not got a core yet.
TEST(Rules, Rule34_ADriverIsWokenOnce) {
  constexpr int kMessages = 5;
  FarDriverStopped stopped(kMessages);
  Pair& pair = stopped.pair;
  stopped.header.driver_sleeping.store(1);
  for (uint64_t id = 1; id <= kMessages; ++id) {
    pair.post(SendOp::kSend, id, pair.at(0, 100));
    pair.world.run_for(20 * kMicrosecond);
  }
  EXPECT_EQ(stopped.wakeups(), 1u);
  EXPECT_EQ(stopped.header.driver_sleeping.load(), 0u);
  stopped.header.driver_sleeping.store(1);  // it has looked, and sleeps again
  pair.world.run_for(100 * kMicrosecond);
  EXPECT_EQ(stopped.wakeups(), 2u) << "there is still something";
  EXPECT_EQ(pair.received(kMessages, 20 * kMillisecond).size(), size_t{kMessages});
}

TEST(Rules, Rule34_APollerIsFetchedSeldom) {
  FarDriverStopped stopped;
  Pair& pair = stopped.pair;
  stopped.header.polling_until_ns.store(stopped.start_ns + FarDriverStopped::kStoppedNs);
  pair.post(SendOp::kSend, 1, pair.at(0, 100));
  const auto awake_and_asleep_for = [&](uint64_t ns) {
    while (pair.world.now() < stopped.start_ns + ns) {
      stopped.header.driver_sleeping.store(1);
      pair.world.run_for(20 * kMicrosecond);
    }
    return stopped.wakeups();
  };
  EXPECT_EQ(awake_and_asleep_for(kMillisecond / 2), 1u);
  EXPECT_EQ(awake_and_asleep_for(3 * kMillisecond), 4u) << "the first may have been in vain";
  EXPECT_EQ(awake_and_asleep_for(5 * kMillisecond), 4u);
  EXPECT_EQ(awake_and_asleep_for(9 * kMillisecond), 5u);
  stopped.header.driver_sleeping.store(0);
  EXPECT_EQ(pair.received(1, 20 * kMillisecond).size(), 1u);
}

// The lcore asks whether it is in the way of the program that goes on now.
TEST(Rules, DataForAProgramOfAProcessorIsToldOnce) {
  Pair pair;
  Nic& nic = pair.far->host->nic();
  pair.far->host->channel().header().program_cpu = 5 + 1;
  pair.post(SendOp::kWrite, 1, pair.at(0, 100));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(nic.delivered_to(5));
  EXPECT_FALSE(nic.delivered_to(5)) << "nothing has come since";
  pair.post(SendOp::kWrite, 2, pair.at(0, 3 * 4096));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_FALSE(nic.delivered_to(4));
  pair.near->host->channel().header().program_cpu = 5 + 1;
  pair.near->host->nic().delivered_to(5);
  pair.post(SendOp::kWrite, 3, pair.at(0, 100));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_FALSE(pair.near->host->nic().delivered_to(5)) << "an ACK is no data";
  pair.post(SendOp::kRead, 4, pair.at(0, 100));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(pair.near->host->nic().delivered_to(5));
}

}  // namespace
}  // namespace hostnic::sim
