// SPDX-License-Identifier: BSD-3-Clause
// Answers to READs on their way through impairments: they are read in order (docs/transport.md rule
// 18).
#include <algorithm>

#include "dataplane/nic/packet/digest_table.h"
#include "tests/unit/nic/ports_fixture.h"

namespace hostnic {
namespace {

// The first of these answers must not be read after the second, which is copied.
TEST_F(Ports, Rule18_ABundleOfAnswersIsCopiedWhereAnAnswerMayBeHeldBack) {
  for (const bool holds_back : {false, true}) {
    set(Direction::kRx, holds_back ? "reorder nth 4 delay 1us" : "drop nth 4");
    rte_mbuf* bundle = make_packet(0, 64, wire::Opcode::kReadResponse);
    make_bundle(*bundle, 5,
                {.payload_bytes = 64, .more = false, .ack_request = false, .solicited = false});
    pipe_.arriving.push_back(bundle);
    rte_mbuf* packets[kBurst];
    const uint16_t count = port_.receive(0, packets, kBurst);
    EXPECT_EQ(count, holds_back ? 5 : 2);
    for (uint16_t i = 0; i < count; ++i) {
      EXPECT_EQ(external_payload(packets[i]) == nullptr, holds_back);
      release_packet(packets[i], references_);
    }
    set(Direction::kRx, "");
    receive_psns(port_);
  }
}

// An answer whose receiver notes what it reads: what is lost of them arrives in its place, marked.
TEST_F(Ports, Rule18_AnswersThatAreLostArriveToBeRead) {
  const DigestSecret secret(1);
  DigestTable digests(64, secret);
  const auto answer = [&](uint32_t psn, uint32_t packets) {
    rte_mbuf* packet = make_packet(psn, 64, wire::Opcode::kReadResponse);
    static_cast<ExternalPayload*>(rte_mbuf_to_priv(packet))->digests = &digests;
    if (packets != 1) {
      make_bundle(*packet, packets - 1,
                  {.payload_bytes = 64, .more = true, .ack_request = false, .solicited = false});
    }
    return packet;
  };
  for (const Direction direction : {Direction::kRx, Direction::kTx}) {
    set(direction, "drop every 3");
    counters_.clear();
    // A lost packet that nobody has to read is gone.
    std::vector<rte_mbuf*> buffers = {answer(1, 1),   answer(2, 1),   answer(3, 1), make_packet(4),
                                      make_packet(5), make_packet(6), answer(7, 6)};
    if (direction == Direction::kTx) {
      ASSERT_EQ(port_.transmit(1, buffers.data(), static_cast<uint16_t>(buffers.size())), 7);
      port_.advance();
    } else {
      pipe_.arriving.assign(buffers.begin(), buffers.end());
      rte_mbuf* burst[kBurst];
      const uint16_t count = port_.receive(0, burst, kBurst);
      pipe_.sent.assign(burst, burst + count);
    }
    std::vector<uint32_t> psns, lost;
    for (rte_mbuf* buffer : pipe_.sent) {
      for (uint32_t i = 0; i < packets_in(buffer); ++i)
        (is_lost(buffer) ? lost : psns).push_back(psn_of(buffer) + i);
    }
    EXPECT_EQ(psns, (std::vector<uint32_t>{1, 2, 4, 5, 7, 8, 10, 11}));
    EXPECT_EQ(lost, (std::vector<uint32_t>{3, 9, 12}));
    for (const uint32_t psn : lost) EXPECT_FALSE(digests.knows(Psn(psn))) << "not read before";
    EXPECT_TRUE(std::ranges::is_sorted(pipe_.sent, {}, psn_of)) << "each in its place";
    EXPECT_EQ(port_.impairment_counters(direction)->dropped, 4u);
    EXPECT_EQ(counters_.get(Counter::tx_packets), direction == Direction::kTx ? 8u : 0u);
    pipe_.clear();
    references_.flush();
    EXPECT_EQ(region_.mbufs_out, 0u);
    set(direction, "");
  }
}

// What the network has lost goes through the impairments of its receiver as it is, is no packet
// that was received, and is gone where answers have to be copied.
TEST_F(Ports, Rule18_WhatIsLostIsNoPacketAnyMore) {
  const DigestSecret secret(1);
  DigestTable digests(64, secret);
  const auto lost = [&](uint32_t psn) {
    rte_mbuf* packet = make_packet(psn, 64, wire::Opcode::kReadResponse);
    static_cast<ExternalPayload*>(rte_mbuf_to_priv(packet))->digests = &digests;
    packet->ol_flags |= lost_flag();
    return packet;
  };
  set(Direction::kRx, "drop nth 1");
  pipe_.arriving = {lost(1), make_packet(2), make_packet(3), lost(4)};
  rte_mbuf* burst[kBurst];
  ASSERT_EQ(port_.receive(0, burst, 2), 2);
  EXPECT_TRUE(is_lost(burst[0]));
  EXPECT_FALSE(is_lost(burst[1]));
  EXPECT_EQ(psn_of(burst[1]), 3u) << "the second is the first that is impaired";
  EXPECT_EQ(port_.impairment_counters(Direction::kRx)->seen, 2u);
  EXPECT_EQ(counters_.get(Counter::rx_packets), 2u);
  for (rte_mbuf* packet : {burst[0], burst[1]}) release_packet(packet, references_);
  EXPECT_FALSE(digests.knows(Psn(4)));
  set(Direction::kRx, "delay 1us nth 1");
  EXPECT_TRUE(receive_psns(port_).empty());
  EXPECT_TRUE(digests.may_say(Psn(4), digest_of({memory_.data(), 64}, secret)));
  references_.flush();
  EXPECT_EQ(region_.mbufs_out, 0u);
}

// What has been let through when impairments change: answers may have to be copies from then on.
TEST_F(Ports, Rule18_ABundleOfAnswersThatWaitsIsCopiedWhenImpairmentsChange) {
  set(Direction::kRx, "drop nth 1");
  rte_mbuf* bundle = make_packet(10, 64, wire::Opcode::kReadResponse);
  make_bundle(*bundle, 5,
              {.payload_bytes = 64, .more = false, .ack_request = false, .solicited = false});
  pipe_.arriving = {make_packet(0), make_packet(1), bundle};
  rte_mbuf* first = nullptr;
  ASSERT_EQ(port_.receive(0, &first, 1), 1);
  release_packet(first, references_);
  set(Direction::kRx, "delay 1us nth 1");
  references_.flush();
  EXPECT_EQ(region_.mbufs_out, 0u) << "none refers to the memory";
  EXPECT_EQ(receive_psns(port_), (std::vector<uint32_t>{10, 11, 12, 13, 14, 15}));
}

// READs are read in order (rule 18): where one answer may be held back, and so be copied and read
// early, the one before it is no longer read later than that.
TEST_F(Ports, Rule18_AnswersThatArriveAreReadBeforeOneIsHeldBack) {
  struct {
    const char* impairments;
    wire::Opcode opcode;
    bool copied;
  } constexpr kCases[] = {{"delay 100us nth 2", wire::Opcode::kReadResponse, true},
                          {"reorder nth 2 distance 3", wire::Opcode::kReadResponse, true},
                          {"duplicate nth 2", wire::Opcode::kReadResponse, true},
                          {"drop nth 2", wire::Opcode::kReadResponse, false},
                          {"delay 100us nth 2", wire::Opcode::kWriteOnly, false}};
  for (const auto& each : kCases) {
    SCOPED_TRACE(testing::Message() << each.impairments << " of " << to_string(each.opcode));
    set(Direction::kRx, each.impairments);
    pipe_.arriving = {make_packet(1, 64, each.opcode), make_packet(2, 64, each.opcode)};
    rte_mbuf* first = nullptr;
    ASSERT_EQ(port_.receive(0, &first, 1), 1);
    EXPECT_EQ(psn_of(first), 1u);
    EXPECT_EQ(external_payload(first) == nullptr, each.copied);
    release_packet(first, references_);
    set(Direction::kRx, "");
    receive_psns(port_);
  }
  set(Direction::kTx, "drop nth 2");
  EXPECT_TRUE(port_.capabilities().keeps_order);
  set(Direction::kTx, "drop nth 2; delay 1us kind ack");
  EXPECT_FALSE(port_.capabilities().keeps_order);
}

}  // namespace
}  // namespace hostnic
