// SPDX-License-Identifier: BSD-3-Clause
// MRC's packets from somebody who wants harm (docs/mrc.md): nothing is placed without a key,
// nothing completes that is not there, and a connection lives, or ends with the error that is
// documented.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>
#include <string>

#include "tests/sim/mrc_packets.h"

namespace hostnic::sim {
namespace {

namespace wm = wire::mrc;

constexpr uint32_t kMtu = 4096, kFirstPsn = 1000;

QpSettings from_first() {
  QpSettings qp;
  qp.psn = kFirstPsn;
  return qp;
}
bool untouched(const Pair& pair) {
  return equal(pair.remote, 0, Memory(Pair::kBytes), 0, Pair::kBytes);
}
bool runs(Pair& pair, uint64_t ns) {
  return pair.world.run_until([] { return false; }, ns, /*idle_is_a_bug=*/false);
}

// The connection works.
void expect_alive(Pair& pair, const std::string& what) {
  EXPECT_EQ(pair.near->state(), QpState::kRts) << what;
  EXPECT_EQ(pair.far->state(), QpState::kRts) << what;
  pair.post(SendOp::kWrite, 77, pair.at(0, 3 * kMtu), 64 * kMtu);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess) << what;
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 64 * kMtu, 3 * kMtu)) << what;
}

// One packet of each kind, which means nothing to anybody.
std::array<wm::Packet, 8> each_kind(const Pair& pair) {
  std::array<wm::Packet, 8> all;
  all[0] = forged_mrc_write(pair, kFirstPsn, pair.rkey);
  all[1].opcode = wm::Opcode::kAck;
  all[2].opcode = wm::Opcode::kSack;
  all[3].opcode = wm::Opcode::kNack;
  all[4].opcode = wm::Opcode::kProbe;
  all[5].opcode = wm::Opcode::kEndpointRequest;
  all[6].opcode = wm::Opcode::kEndpointResponse;
  all[7] = forged_mrc_write(pair, kFirstPsn + 5, pair.rkey);
  for (size_t i = 1; i < 7; ++i) {
    all[i].psn = all[i].seth.cumulative_psn = all[i].neth.psn = Psn(kFirstPsn);
    all[i].neth.reason = wm::NackReason::kUnexpectedEvent;
  }
  return all;
}

// ---- from elsewhere, and to nobody

TEST(MrcHostile, NothingOfAStrangersIsTaken) {
  WorldSettings settings = mrc_world();
  settings.hosts = 3;
  Pair pair(from_first(), settings);
  for (const bool to_near : {false, true}) {
    Host& attacked = *(to_near ? pair.near : pair.far)->host;
    for (const wm::Packet& headers : each_kind(pair)) {
      const uint64_t sent = attacked.counter(Counter::tx_packets);
      forge_mrc(pair, headers, {.source_host = 2, .to_near = to_near});
      EXPECT_EQ(attacked.counter(Counter::tx_packets), sent) << to_string(headers);
    }
    // Endpoint packets to a queue pair's number are none.
    EXPECT_EQ(attacked.counter(Counter::rx_wrong_tag), 6u);
    EXPECT_EQ(attacked.counter(Counter::rx_parse_error), 2u);
  }
  EXPECT_TRUE(untouched(pair));
  expect_alive(pair, "strangers");
}

TEST(MrcHostile, NothingForAnotherQueuePairIsTaken) {
  Pair pair(from_first(), mrc_world());
  for (const wm::Packet& headers : each_kind(pair)) {
    forge_mrc(pair, headers, {.qpn = pair.far->qpn() ^ 0x800000});
    forge_mrc(pair, headers, {.source_host = 1, .to_near = true, .qpn = pair.near->qpn() ^ 1});
  }
  EXPECT_GE(pair.far_counter(Counter::rx_unknown_qp), 6u);
  EXPECT_GE(pair.near_counter(Counter::rx_unknown_qp), 6u);
  EXPECT_TRUE(untouched(pair));
  expect_alive(pair, "other numbers");
}

// Endpoint requests and responses, whoever they are from, are not about this connection.
TEST(MrcHostile, EndpointPacketsPlaceNothing) {
  WorldSettings settings = mrc_world();
  settings.hosts = 3;
  Pair pair(from_first(), settings);
  for (const uint32_t source : {0, 2}) {
    for (const auto operation :
         {wm::EndpointOperation::kPortStatus, wm::EndpointOperation::kPathProbe}) {
      wm::Packet endpoint;
      endpoint.erth.operation = endpoint.eeth.operation = operation;
      for (uint32_t id = 0; id < 50; ++id) {
        endpoint.psn = Psn(id * 1313);
        endpoint.opcode =
            id % 2 == 0 ? wm::Opcode::kEndpointRequest : wm::Opcode::kEndpointResponse;
        forge_mrc(pair, endpoint,
                  {.source_host = source, .qpn = raw(wm::kEndpointQpn), .run_ns = kMicrosecond});
      }
    }
  }
  EXPECT_TRUE(untouched(pair));
  expect_alive(pair, "endpoint packets");
}

// ---- WRITEs in the peer's name

struct ForgedWrite {
  std::string name;
  std::function<void(wm::Packet&, const Pair&)> change;
  bool ends = false;  // the connection
  uint32_t psn_ahead = 0;
  uint32_t access = kAllAccess;
  uint16_t cut_bytes = 0;
};

const std::array kWrites = {
    ForgedWrite{"a key that nobody has", [](auto& p, auto&) { p.reth.key ^= 0x100; }, true},
    ForgedWrite{"the same, whose turn has not come", [](auto& p, auto&) { p.reth.key ^= 0x100; },
                false, 5},
    ForgedWrite{"a region without the right to write", [](auto&, auto&) {}, true, 0,
                kAccessLocalWrite},
    ForgedWrite{"the same ahead", [](auto&, auto&) {}, false, 5, kAccessLocalWrite},
    ForgedWrite{"an end behind the region's",
                [](auto& p, auto& pair) { p.reth.va = pair.remote.address(Pair::kBytes - 63); },
                true},
    ForgedWrite{"a beginning before the region's",
                [](auto& p, auto& pair) { p.reth.va = pair.remote.address(0) - 1; }, true},
    ForgedWrite{"an address that wraps", [](auto& p, auto&) { p.reth.va = UINT64_MAX - 31; }, true},
    ForgedWrite{"the same ahead", [](auto& p, auto&) { p.reth.va = UINT64_MAX - 31; }, false, 5},
    ForgedWrite{
        "a First shorter than the path MTU",
        [](auto& p, auto&) { p.opcode = wm::Opcode::kWriteFirst, p.reth.length_bytes = 128; },
        true},
    ForgedWrite{"a message longer than any",
                [](auto& p, auto&) {
                  p.opcode = wm::Opcode::kWriteFirst, p.reth.length_bytes = UINT32_MAX,
                  p.payload_bytes = kMtu;
                },
                true},
    ForgedWrite{"immediate data of another number",
                [](auto& p, auto&) { p.opcode = wm::Opcode::kWriteOnlyImm, p.meth.rqmsn = 1; },
                true},
    ForgedWrite{"immediate data that finds no receive",
                [](auto& p, auto&) {
                  p.opcode = wm::Opcode::kWriteOnlyImm, p.payload_bytes = 0,
                  p.reth.length_bytes = 0;
                },
                true},
    ForgedWrite{"less than its length says", [](auto& p, auto&) { p.reth.length_bytes = 65; }},
    ForgedWrite{"more than its length says", [](auto& p, auto&) { p.reth.length_bytes = 63; }},
    ForgedWrite{"a Last as long as its message",
                [](auto& p, auto&) { p.opcode = wm::Opcode::kWriteLast; }},
    ForgedWrite{"a Middle without a byte",
                [](auto& p, auto&) { p.opcode = wm::Opcode::kWriteMiddle, p.payload_bytes = 0; }},
    ForgedWrite{"a right key beyond the window", [](auto&, auto&) {}, false, 1024},
    ForgedWrite{"a right key half the numbers away", [](auto&, auto&) {}, false, 1u << 23},
    ForgedWrite{"a right key of what is done", [](auto&, auto&) {}, false, Psn::kMask},
    ForgedWrite{"headers that are cut off", [](auto&, auto&) {}, false, 0, kAllAccess, 64 + 3},
    ForgedWrite{"BTH alone", [](auto&, auto&) {}, false, 0, kAllAccess, 64 + 20},
};

TEST(MrcHostile, NothingIsPlacedThatAForgedWriteMayNot) {
  for (const ForgedWrite& each : kWrites) {
    Pair pair(from_first(), mrc_world(), each.access);
    wm::Packet write = forged_mrc_write(pair, kFirstPsn + each.psn_ahead, pair.rkey);
    each.change(write, pair);
    forge_mrc(pair, write, {.cut_bytes = each.cut_bytes});
    runs(pair, kMillisecond);
    EXPECT_TRUE(untouched(pair)) << each.name;
    EXPECT_TRUE(pair.remote.surroundings_intact()) << each.name;
    EXPECT_EQ(pair.far->state(), each.ends ? QpState::kErr : QpState::kRts) << each.name;
    EXPECT_EQ(pair.near->state(), QpState::kRts)
        << each.name << ": what it never sent is no business of its";
    if (!each.ends && each.access == kAllAccess && each.psn_ahead == 0)
      expect_alive(pair, each.name);
  }
}

// Which receive it takes says its number, and not the order of arrival.
TEST(MrcHostile, ImmediateDataOfAnotherNumberTakesNoReceive) {
  for (const uint32_t psn_ahead : {0u, 5u}) {
    Pair pair(from_first(), mrc_world());
    pair.post_receive(1, 8 * kMtu, 64);
    wm::Packet write = forged_mrc_write(pair, kFirstPsn + psn_ahead, pair.rkey);
    write.opcode = wm::Opcode::kWriteOnlyImm;
    write.meth.rqmsn = 1;
    forge_mrc(pair, write);
    EXPECT_TRUE(untouched(pair)) << psn_ahead;
    for (const auto& done : pair.received(1, kMillisecond))
      EXPECT_EQ(done.status, WcStatus::kWrFlushErr);
  }
}

// A sender of more than the window has room for is told so.
TEST(MrcHostile, WhatIsBeyondTheWindowIsRefused) {
  Pair pair(from_first(), mrc_world());
  std::map<uint32_t, wm::NackReason> refused;
  watch_mrc(pair, [&](const SeenMrc& seen) {
    if (seen.headers.opcode == wm::Opcode::kNack)
      refused[seen.headers.neth.psn.value()] = seen.headers.neth.reason;
  });
  for (const uint32_t ahead : {1023u, 1024u, 5000u})
    forge_mrc(pair, forged_mrc_write(pair, kFirstPsn + ahead, pair.rkey ^ 0x100));
  EXPECT_EQ(refused, (std::map<uint32_t, wm::NackReason>{
                         {kFirstPsn + 1024, wm::NackReason::kPsnOutOfWindow},
                         {kFirstPsn + 5000, wm::NackReason::kPsnOutOfWindow}}));
  EXPECT_TRUE(untouched(pair));
  pair.world.wire().set_tap(nullptr);
}

// ---- answers in the peer's name

// A WRITE of eight packets, of which none arrives while somebody says what he will about them.
class MrcLies : public testing::Test {
 protected:
  static constexpr uint32_t kBefore = 64, kFirst = kFirstPsn + kBefore, kPackets = 8;
  void begin() {
    pair.post(SendOp::kWrite, 0, pair.at(0, kBefore * kMtu), 128 * kMtu);
    ASSERT_EQ(pair.status_of_one(), WcStatus::kSuccess);
    watch_mrc(pair, [this](const SeenMrc& seen) {
      if (!is_mrc_write(seen.p.opcode)) return;
      ++sent[seen.p.psn.value()];
      newest[seen.p.psn.value()] = {seen.p.src_port, seen.headers.timestamp.value};
    });
    pair.world.impair(1, "rx drop all kind write");
    pair.post(SendOp::kWrite, 1, pair.at(0, kPackets * kMtu), kMtu);
    runs(pair, 3 * kMicrosecond);
    ASSERT_EQ(sent.size(), kPackets);
  }
  void lie(wm::Packet headers, uint64_t run_ns = 2 * kMicrosecond) {
    forge_mrc(pair, headers, {.source_host = 1, .to_near = true, .run_ns = run_ns});
  }
  wm::Packet sack(uint32_t cumulative, uint32_t answered) const {
    wm::Packet sack;
    sack.opcode = wm::Opcode::kSack;
    sack.psn = sack.seth.cumulative_psn = Psn(cumulative);
    sack.seth.ack_offset = static_cast<int16_t>(answered - cumulative);
    sack.seth.sack_offset = 1;
    if (const auto it = newest.find(answered); it != newest.end()) {
      sack.seth.entropy = it->second.first;
      sack.cc_state.timestamp = it->second.second;
    }
    return sack;
  }
  wm::Packet nack(uint32_t psn, wm::NackReason reason) const {
    wm::Packet nack;
    nack.opcode = wm::Opcode::kNack;
    nack.psn = nack.neth.psn = Psn(psn);
    nack.neth.reason = reason;
    nack.neth.entropy = newest.at(psn).first;
    nack.neth.timestamp = newest.at(psn).second;
    return nack;
  }
  // Nothing has completed; with a network that carries packets it does, and all bytes are there.
  void expect_recovery(const std::string& what) {
    EXPECT_EQ(pair.sent(1, 100 * kMicrosecond).size(), 0u) << what;
    pair.world.impair(1, "rx none");
    EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess) << what;
    EXPECT_TRUE(equal(pair.local, 0, pair.remote, kMtu, kPackets * kMtu)) << what;
    expect_alive(pair, what);
    pair.world.wire().set_tap(nullptr);
  }

  Pair pair{from_first(), mrc_world()};
  std::map<uint32_t, uint32_t> sent;                         // how often, by PSN
  std::map<uint32_t, std::pair<uint16_t, uint16_t>> newest;  // source port and timestamp, by PSN
};

TEST_F(MrcLies, ASackOfWhatHasNotComeCompletesNothing) {
  begin();
  lie(sack(kFirst + kPackets - 1, kFirst + kPackets - 1));
  expect_recovery("all of it");
}

TEST_F(MrcLies, ABitmapOfWhatHasNotComeCompletesNothing) {
  begin();
  wm::Packet lying = sack(kFirst - 1, kFirst + 3);
  lying.seth.bitmap = 0xaa;
  lie(lying);
  lying.seth.bitmap = 0x7e;
  lie(lying);
  expect_recovery("six of eight");
}

TEST_F(MrcLies, ASackOfMoreThanHasLeftIsIgnored) {
  begin();
  const uint64_t before = pair.near_counter(Counter::mrc_sacks_received);
  for (const int32_t offset : {-32768, -9, 1, 2, 9, 64, 32767}) {
    wm::Packet lying = sack(kFirst - 1, kFirst + 3);
    lying.seth.sack_offset = static_cast<int16_t>(offset);
    lying.seth.bitmap = ~uint64_t{0};
    lie(lying);
    lying = sack(kFirst + kPackets, kFirst + 3);
    lying.seth.ack_offset = static_cast<int16_t>(offset);
    lie(lying);
  }
  EXPECT_EQ(pair.near_counter(Counter::mrc_sacks_received), before + 14);
  expect_recovery("bits of what never left");
}

// All values are said to be bad; then packets go by bad ones.
TEST_F(MrcLies, PathsThatAreAllSaidToBeBadAreTakenAllTheSame) {
  begin();
  for (uint32_t i = 0; i < kPackets; ++i) {
    wm::Packet lying = sack(kFirst - 1, kFirst + i);
    lying.seth.mark = wm::PathMark::kAlwaysSkip;
    lie(lying);
  }
  EXPECT_EQ(pair.near_counter(Counter::mrc_paths_lost), 8u);
  expect_recovery("bad paths");
}

TEST_F(MrcLies, WindowsOfNothingAndOfAllAreBounded) {
  begin();
  for (const uint32_t mpr : {1u, 255u, 0u, 32u}) {
    for (const uint32_t penalty : {127u, 0u}) {
      wm::Packet lying = sack(kFirst - 1, kFirst);
      lying.seth.mpr_units = static_cast<uint8_t>(mpr);
      lying.cc_state.window_penalty = static_cast<uint8_t>(penalty);
      lying.cc_state.restores_window = true;
      lying.cc_state.timestamp = static_cast<uint16_t>(mpr * 257);
      lie(lying);
    }
  }
  const QpStatus& status = pair.near->host->channel().qp_status(0);
  EXPECT_GE(status.window_psns, 1u);
  EXPECT_LE(distance(Psn(kFirst), Psn(status.highest_acceptable_psn)), 1024)
      << "the NIC's own window";
  expect_recovery("windows");
}

// Each reason but one is mended by a repetition.
TEST_F(MrcLies, NacksEndNothingButOne) {
  begin();
  for (uint32_t reason = 0; reason < 256; ++reason) {
    const auto value = static_cast<wm::NackReason>(reason);
    if (value != wm::NackReason::kUnexpectedEvent) lie(nack(kFirst + reason % kPackets, value), 10);
  }
  runs(pair, 2 * kMicrosecond);
  EXPECT_EQ(pair.near_counter(Counter::mrc_nacks_received), 255u);
  expect_recovery("255 reasons");
}

TEST_F(MrcLies, AnUnexpectedEventEndsTheConnection) {
  begin();
  lie(nack(kFirst + 3, wm::NackReason::kUnexpectedEvent));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kRemOpErr);
  EXPECT_EQ(pair.near->state(), QpState::kErr);
  pair.world.wire().set_tap(nullptr);
}

// One transmission is trimmed once: a hundred NACKs of it bring one repetition, and one of another
// moment none.
TEST_F(MrcLies, NacksOfOneTrimmedPacketBringOneRepetition) {
  begin();
  wm::Packet old = nack(kFirst + 3, wm::NackReason::kTrimmed);
  old.neth.timestamp ^= 0x4000;
  for (int i = 0; i < 20; ++i) lie(old, 10);
  runs(pair, 2 * kMicrosecond);
  EXPECT_EQ(sent[kFirst + 3], 1u);
  const wm::Packet once = nack(kFirst + 3, wm::NackReason::kTrimmed);
  for (int i = 0; i < 100; ++i) lie(once, 10);
  runs(pair, 2 * kMicrosecond);
  EXPECT_EQ(sent[kFirst + 3], 2u);
  expect_recovery("trimmed");
}

// Answers to probes that nobody has sent, of values that there are and that there are not.
TEST_F(MrcLies, AnswersToNoProbeChangeNothing) {
  begin();
  for (const uint32_t id : {0u, 15u, 16u, 255u, 256u, 0xffffu}) {
    wm::Packet answer = sack(kFirst - 1, kFirst);
    answer.seth.answers_probe = true;
    answer.seth.probe_id = static_cast<uint16_t>(id);
    lie(answer);
  }
  EXPECT_EQ(pair.near_counter(Counter::mrc_paths_regained), 0u);
  expect_recovery("probes");
}

// An AETH that is no ACK and no NAK is nothing, and a NAK ends the request with its error.
TEST_F(MrcLies, ANakEndsTheRequestWithItsError) {
  begin();
  wm::Packet ack;
  ack.opcode = wm::Opcode::kAck;
  ack.psn = Psn(kFirst);
  for (const uint8_t kind : {1, 2}) {
    ack.aeth = {static_cast<wire::AckKind>(kind), 0, 0};
    lie(ack);
  }
  EXPECT_EQ(pair.near_counter(Counter::rx_parse_error), 2u);
  EXPECT_EQ(pair.near->state(), QpState::kRts);
  ack.aeth = {wire::AckKind::kNak, static_cast<uint8_t>(wire::NakCode::kRemoteAccess), 0};
  lie(ack);
  EXPECT_EQ(pair.status_of_one(), WcStatus::kRemAccessErr);
  EXPECT_EQ(pair.near->state(), QpState::kErr);
  pair.world.wire().set_tap(nullptr);
}

// ---- floods

TEST(MrcHostile, AFloodOfProbesIsAnsweredWithinBounds) {
  Pair pair(from_first(), mrc_world());
  wm::Packet probe;
  probe.opcode = wm::Opcode::kProbe;
  const uint64_t before = pair.far_counter(Counter::tx_packets);
  for (uint32_t i = 0; i < 2000; ++i) {
    probe.peth.probe_id = static_cast<uint16_t>(i * 31);
    forge_mrc(pair, probe, {.run_ns = 10});
  }
  runs(pair, 100 * kMicrosecond);
  EXPECT_LE(pair.far_counter(Counter::tx_packets) - before, 2000u);
  EXPECT_GT(pair.far_counter(Counter::tx_packets) - before, 0u);
  EXPECT_TRUE(untouched(pair));
  expect_alive(pair, "probes");
}

// What is trimmed says PSN and queue pair alone: a NACK where that is asked for, and silence else.
TEST(MrcHostile, TrimmedPacketsPlaceNothing) {
  struct Case {
    uint32_t psn, source_host, nacks;
    uint16_t cut_bytes;
  };
  constexpr uint16_t kRest = 16 + 64;  // RETH, payload
  for (const Case& each : {Case{kFirstPsn, 0, 1, kRest}, Case{kFirstPsn + 1023, 0, 1, kRest},
                           Case{kFirstPsn, 0, 1, 0}, Case{kFirstPsn + 1024, 0, 0, kRest},
                           Case{kFirstPsn - 1, 0, 0, kRest}, Case{kFirstPsn, 2, 0, kRest},
                           Case{kFirstPsn, 0, 0, kRest + 1}, Case{kFirstPsn, 0, 0, kRest + 4}}) {
    WorldSettings settings = mrc_world();
    settings.hosts = 3;
    Pair pair(from_first(), settings);
    const wm::Packet write = forged_mrc_write(pair, each.psn, pair.rkey);
    forge_mrc(pair, write,
              {.source_host = each.source_host, .is_trimmed = true, .cut_bytes = each.cut_bytes});
    EXPECT_EQ(pair.far_counter(Counter::mrc_nacks_sent), each.nacks)
        << each.psn << " " << each.cut_bytes;
    EXPECT_TRUE(untouched(pair)) << each.psn << " " << each.cut_bytes;
    expect_alive(pair, "trimmed");
  }
  // None of the other kinds is what a switch would have trimmed.
  Pair pair(from_first(), mrc_world());
  const auto all = each_kind(pair);
  for (size_t i = 1; i < 7; ++i) forge_mrc(pair, all[i], {.is_trimmed = true});
  EXPECT_EQ(pair.far_counter(Counter::mrc_nacks_sent), 0u);
  expect_alive(pair, "trimmed control packets");
}

}  // namespace
}  // namespace hostnic::sim
