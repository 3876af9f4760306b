// SPDX-License-Identifier: BSD-3-Clause
// A capture at the ports: every packet that leaves, once, bundles as their packets, only what the
// port took; what impairments lose, by which rule; what they change is said where it goes.
#include "dataplane/nic/egress/packet_tap.h"

#include <cstring>
#include <map>
#include <memory>

#include "tests/unit/nic/ports_fixture.h"

namespace hostnic {
namespace {

class PacketTaps : public Ports {
 protected:
  PacketTaps() {
    header_.ring_bytes = kBytes;
    ring_ = std::make_unique<Ring>();
    for (size_t i = 0; i < memory_.size(); ++i) memory_[i] = static_cast<std::byte>(i / 64);
  }
  void start(uint32_t snap_bytes = kMaxSnapBytes) {
    tap_ = std::make_unique<PacketTap>(header_, index_, ring_->bytes,
                                       PacketTap::Settings{.snap_bytes = snap_bytes});
    tap_->begin(counters_);
    loopback_.set_tap(tap_.get());
    port_.set_tap(tap_.get());
    reader_ = std::make_unique<CaptureReader>(header_, index_, ring_->bytes, kBytes);
  }
  struct Seen {
    CaptureRecord record;
    wire::Packet headers;
    std::vector<std::byte> bytes;
  };
  std::vector<Seen> seen() {
    std::vector<Seen> all;
    Seen each;
    std::span<const std::byte> bytes;
    while (reader_->next(each.record, bytes) == CaptureReader::Result::kRecord) {
      each.bytes.assign(bytes.begin(), bytes.end());
      EXPECT_EQ(wire::parse(each.bytes, each.record.packet_bytes, false, each.headers),
                wire::ParseError::kNone);
      all.push_back(each);
    }
    return all;
  }
  void send(std::vector<rte_mbuf*> packets) {
    const uint16_t taken = port_.transmit(1, packets.data(), static_cast<uint16_t>(packets.size()));
    for (size_t i = taken; i < packets.size(); ++i) release_packet(packets[i], references_);
  }

  static constexpr uint64_t kBytes = uint64_t{1} << 20;
  struct Ring {
    alignas(64) std::byte bytes[kBytes] = {};
  };
  std::unique_ptr<Ring> ring_;
  CaptureHeader header_;
  CaptureIndex index_;
  std::unique_ptr<PacketTap> tap_;
  std::unique_ptr<CaptureReader> reader_;
};

TEST_F(PacketTaps, ABundleIsItsPackets) {
  start();
  send({make_packet(5), make_bundle_of(10, 4)});
  const auto all = seen();
  ASSERT_EQ(all.size(), 5u);
  const uint32_t psns[] = {5, 10, 11, 12, 13};
  for (size_t i = 0; i < all.size(); ++i) {
    const Seen& each = all[i];
    EXPECT_EQ(each.headers.psn.value(), psns[i]);
    EXPECT_EQ(each.record.sequence, i);
    EXPECT_EQ(each.record.direction, CaptureDirection::kSent);
    EXPECT_EQ(each.headers.ack_request, i == 4) << "the last of the bundle asks";
    ASSERT_EQ(each.headers.payload_bytes, 64);
    const auto payload = std::span(each.bytes).last(64);
    EXPECT_EQ(payload[0], static_cast<std::byte>(i == 0 ? 0 : i - 1)) << "each has its own part";
  }
  EXPECT_EQ(counters_.get(Counter::tx_packets), all.size());
}

TEST_F(PacketTaps, OnlyWhatThePortTakesIsThere) {
  start();
  pipe_.room = 2;
  send({make_packet(1), make_bundle_of(2, 3), make_bundle_of(5, 3)});
  ASSERT_EQ(seen().size(), 4u);
  EXPECT_EQ(counters_.get(Counter::tx_packets), 4u);
  EXPECT_EQ(header_.seen.load(), 4u);
  EXPECT_EQ(header_.not_kept.load(), 0u);
}

TEST_F(PacketTaps, AShortRecordHasTheWholeLength) {
  start(100);
  send({make_packet(1, 1024)});
  const auto all = seen();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].bytes.size(), 100u);
  EXPECT_EQ(all[0].headers.payload_bytes, 1024);
}

TEST_F(PacketTaps, DeathsAreCounted) {
  start();
  EXPECT_EQ(header_.last_death.load(), 0u);
  tap_->note_death(4711);
  EXPECT_EQ(header_.last_death.load(), capture_death(1, 4711));
  tap_->note_death(4711);
  EXPECT_EQ(death_count(header_.last_death.load()), 2u) << "the same process's other device";
  EXPECT_EQ(death_pid(header_.last_death.load()), 4711u);
}

TEST_F(PacketTaps, WhatIsSentAgainSaysSo) {
  start();
  rte_mbuf* const again = make_packet(1);
  again->ol_flags |= resent_flag();
  send({again, make_packet(2)});
  const auto all = seen();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_NE(all[0].record.flags & kCaptureRetransmit, 0);
  EXPECT_EQ(all[1].record.flags & kCaptureRetransmit, 0);
}

TEST_F(PacketTaps, WhatASwitchHasCutOffIsShownAsItIs) {
  start();
  rte_mbuf* const cut = make_packet(1);
  cut->ol_flags |= trimmed_flag();
  rte_mbuf* const whole = make_packet(2);
  for (rte_mbuf* const packet : {cut, whole}) {
    tap_->begin_received(packet, counters_);
    tap_->end_received(counters_, {});
    release_packet(packet, references_);
  }
  const auto all = seen();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_NE(all[0].record.flags & kCaptureAsItIs, 0) << "no ICRC is to be made for it";
  EXPECT_EQ(all[1].record.flags & kCaptureAsItIs, 0);
}

TEST_F(PacketTaps, WhatImpairmentsLoseNamesTheRule) {
  set(Direction::kTx, "drop nth 2; drop nth 2; duplicate nth 2");
  start();
  send({make_packet(1), make_bundle_of(2, 3), make_packet(5)});
  port_.advance();
  std::map<uint32_t, std::vector<std::pair<uint8_t, uint8_t>>> fates;
  for (const Seen& each : seen())
    fates[each.headers.psn.value()].push_back({each.record.impaired, each.record.rule});
  using Fates = std::vector<std::pair<uint8_t, uint8_t>>;
  EXPECT_EQ(fates[1], (Fates{{0, 0}}));
  EXPECT_EQ(fates[2], (Fates{{kImpairedDropped, 1}}));
  EXPECT_EQ(fates[3], (Fates{{kImpairedDropped, 2}}));
  EXPECT_EQ(fates[4], (Fates{{0, 0}, {kImpairedCopy, 3}}));
  EXPECT_EQ(fates[5], (Fates{{0, 0}}));
  EXPECT_EQ(counters_.get(Counter::tx_packets), 4u);
}

TEST_F(PacketTaps, ACopyThatIsLostIsLostToo) {
  set(Direction::kTx, "duplicate all; drop every 2");
  start();
  send({make_packet(1), make_packet(2)});
  port_.advance();
  uint32_t sent = 0, lost_copies = 0;
  for (const Seen& each : seen()) {
    sent += each.record.impaired == 0;
    lost_copies += each.record.impaired == (kImpairedDropped | kImpairedCopy);
    EXPECT_EQ(each.record.rule, each.record.impaired == 0 ? 0 : 2);
  }
  EXPECT_EQ(sent, 2u);
  EXPECT_EQ(lost_copies, 2u);
}

TEST_F(PacketTaps, WhatIsHeldBackOrChangedSaysSoWhereItGoes) {
  set(Direction::kTx, "reorder nth 1 distance 1; corrupt nth 3");
  start();
  send({make_packet(1), make_packet(2), make_packet(3)});
  port_.advance();
  std::vector<std::pair<uint8_t, uint8_t>> fates;
  CaptureRecord record;
  std::span<const std::byte> bytes;
  while (reader_->next(record, bytes) == CaptureReader::Result::kRecord)
    fates.push_back({record.impaired, record.rule});
  using Fates = std::vector<std::pair<uint8_t, uint8_t>>;
  EXPECT_EQ(fates, (Fates{{0, 0}, {kImpairedHeldBack, 1}, {kImpairedCorrupted, 2}}));
}

// The verdict of a packet is what changed while it was dispatched, and what left meanwhile comes
// behind it, once it is there.
TEST_F(PacketTaps, TheVerdictIsWhatChangedMeanwhile) {
  start();
  counters_.add(Counter::duplicate_request, 7);
  rte_mbuf* const packet = make_packet(9);
  tap_->begin_received(packet, counters_);
  counters_.add(Counter::duplicate_request);
  counters_.add(Counter::bytes_copied_mapped, 64);
  counters_.add(Counter::tx_bytes, 1000);  // says nothing about the packet
  send({make_packet(1)});
  EXPECT_TRUE(seen().empty()) << "the packet is still being dispatched";
  tap_->end_received(counters_, {.qp_state = 3, .has_expected = true, .expected_psn = 10});
  release_packet(packet, references_);
  const auto all = seen();
  ASSERT_EQ(all.size(), 2u);
  const CaptureRecord& record = all[0].record;
  EXPECT_EQ(record.direction, CaptureDirection::kReceived);
  EXPECT_EQ(record.expected_psn, 10u);
  ASSERT_EQ(record.change_count, 2);
  EXPECT_EQ(record.changes[0].counter, static_cast<uint16_t>(Counter::duplicate_request));
  EXPECT_EQ(record.changes[0].by, 1u);
  EXPECT_EQ(record.changes[1].by, 64u);
  EXPECT_EQ(all[1].headers.psn.value(), 1u);
  tap_->end(counters_);
  EXPECT_EQ(header_.ended.load(), 1u);
  const auto at = static_cast<size_t>(Counter::duplicate_request);
  EXPECT_EQ(header_.at_end[at] - header_.at_start[at], 8u);
}

// A full ring costs records, and no packet.
TEST_F(PacketTaps, AFullRingHoldsNobodyUp) {
  start();
  constexpr uint32_t kPackets = 5000;
  for (uint32_t i = 0; i < kPackets; ++i) {
    send({make_packet(i, 256)});
    pipe_.clear();
  }
  EXPECT_EQ(counters_.get(Counter::tx_packets), kPackets);
  EXPECT_EQ(header_.seen.load(), kPackets);
  const size_t kept = seen().size();
  EXPECT_GT(kept, 0u);
  EXPECT_EQ(header_.not_kept.load(), kPackets - kept);
}

}  // namespace
}  // namespace hostnic
