// SPDX-License-Identifier: BSD-3-Clause
// `hostnic capture`: the file's bytes, frames as on a wire, verdicts in words, and filters.
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "dataplane/cli/capture_filter.h"
#include "dataplane/cli/capture_packet.h"
#include "dataplane/cli/pcapng.h"
#include "dataplane/cli/quantities.h"
#include "protocol/wire/icrc.h"

namespace hostnic::cli {
namespace {

// ---- pcapng, by hand from the specification

std::string words(std::initializer_list<uint32_t> values) {
  std::string text;
  for (const uint32_t value : values)
    text.append(reinterpret_cast<const char*>(&value), sizeof(value));
  return text;
}
uint32_t option(uint32_t code, uint32_t length) { return length << 16 | code; }

TEST(Pcapng, ASection) {
  PcapngWriter writer;
  writer.begin("me");
  EXPECT_EQ(writer.buffer(),
            words({0x0a0d0d0a, 40, 0x1a2b3c4d, 1, 0xffffffff, 0xffffffff, option(4, 2)}) +
                std::string("me\0\0", 4) + words({0, 40}));
}

TEST(Pcapng, AnInterface) {
  PcapngWriter writer;
  writer.add_interface({.name = "hnic0", .description = "", .snap_bytes = 128});
  EXPECT_EQ(writer.buffer(), words({1, 44, 1, 128, option(2, 5)}) + std::string("hnic0\0\0\0", 8) +
                                 words({option(9, 1), 9, 0, 44}));
}

TEST(Pcapng, APacketOfFiveBytes) {
  PcapngWriter writer;
  const std::array<std::byte, 5> bytes{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4},
                                       std::byte{5}};
  writer.add_packet({.interface = 1,
                     .wall_ns = 0x1122334455667788,
                     .original_bytes = 9,
                     .bytes = bytes,
                     .sent = true,
                     .comment = "sent"});
  EXPECT_EQ(writer.buffer(),
            words({6, 60, 1, 0x11223344, 0x55667788, 5, 9, 0x04030201, 5, option(1, 4)}) + "sent" +
                words({option(2, 4), 2, 0, 60}));
}

TEST(Pcapng, Statistics) {
  PcapngWriter writer;
  writer.add_statistics({.interface = 0,
                         .wall_start_ns = 1,
                         .wall_end_ns = uint64_t{2} << 32,
                         .received = 3,
                         .dropped = 4,
                         .comment = ""});
  EXPECT_EQ(writer.buffer(), words({5, 76, 0, 2, 0, option(2, 8), 0, 1, option(3, 8), 2, 0,
                                    option(4, 8), 3, 0, option(5, 8), 4, 0, 0, 76}));
}

// ---- frames

// A SEND without ICRC, as NICs of the virtual wire hand it over.
std::vector<std::byte> packet_of(uint16_t payload_bytes, CaptureRecord& record,
                                 wire::Opcode opcode = wire::Opcode::kSend) {
  wire::Packet p;
  p.opcode = opcode;
  p.dest_qpn = Qpn{0x10010};
  p.src_qpn = Qpn{0x20020};
  p.psn = Psn(17);
  p.payload_bytes = payload_bytes;
  p.reth = {0, 1, payload_bytes};
  const auto flow =
      wire::make_flow_template({2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}, Ipv4Address{0x0a000001},
                               Ipv4Address{0x0a000002}, 0xc000, 0, 64);
  std::vector<std::byte> bytes(wire::kMaxHeaderBytes + payload_bytes, std::byte{0x5a});
  bytes.resize(wire::build(flow, p, false, {}, bytes) + payload_bytes);
  record.packet_bytes = record.captured_bytes = static_cast<uint32_t>(bytes.size());
  return bytes;
}

TEST(CaptureFrame, GetsPadAndIcrc) {
  for (const uint16_t payload : {0, 1, 2, 3, 4, 1023, 4096}) {
    CaptureRecord record;
    std::vector<std::byte> bytes = packet_of(payload, record);
    const uint32_t frame_bytes = make_frame(record, bytes);
    ASSERT_EQ(frame_bytes, bytes.size());
    EXPECT_EQ(frame_bytes, record.packet_bytes + wire::pad_bytes(payload) + wire::kIcrcBytes);
    const auto p = headers_in(bytes, frame_bytes);
    ASSERT_TRUE(p) << payload;
    EXPECT_EQ(p->payload_bytes, payload);
    EXPECT_EQ(p->psn, Psn(17));
    const std::span covered =
        std::span(bytes).subspan(wire::kEthernetBytes).first(wire::icrc_covered_bytes(*p));
    EXPECT_EQ(wire::icrc_reference(covered), wire::load_icrc(covered.data() + covered.size()));
  }
}

TEST(CaptureFrame, APartHasTheLengthsOfTheWhole) {
  CaptureRecord record;
  std::vector<std::byte> bytes = packet_of(1001, record);
  bytes.resize(128);
  record.captured_bytes = 128;
  const uint32_t frame_bytes = make_frame(record, bytes);
  EXPECT_EQ(bytes.size(), 128u);
  EXPECT_EQ(frame_bytes, record.packet_bytes + 3 + wire::kIcrcBytes);
  const auto p = headers_in(bytes, frame_bytes);
  ASSERT_TRUE(p);
  EXPECT_EQ(p->payload_bytes, 1001);
}

TEST(CaptureFrame, WhatHasAnIcrcOrIsNoRoceStays) {
  CaptureRecord record;
  std::vector<std::byte> bytes = packet_of(8, record);
  make_frame(record, bytes);
  record.packet_bytes = record.captured_bytes = static_cast<uint32_t>(bytes.size());
  record.flags = kCaptureAsItIs;
  const std::vector<std::byte> before = bytes;
  EXPECT_EQ(make_frame(record, bytes), bytes.size());
  EXPECT_EQ(bytes, before);
  std::vector<std::byte> arp(60, std::byte{0x08});
  record = {};
  record.packet_bytes = record.captured_bytes = 60;
  EXPECT_EQ(make_frame(record, arp), 60u);
  // Every beginning of a packet, and lengths that contradict it, are left alone or changed within.
  for (size_t kept = 0; kept < before.size(); ++kept) {
    std::vector<std::byte> some(before.begin(), before.begin() + static_cast<ptrdiff_t>(kept));
    record.captured_bytes = static_cast<uint32_t>(kept);
    record.packet_bytes = 2000;
    EXPECT_EQ(make_frame(record, some), 2000u);
    EXPECT_EQ(some.size(), kept);
  }
}

// ---- words

const std::vector<std::string> kCounters = {"duplicate_request", "reorder_buffered",
                                            "bytes_copied_mapped", "rx_unknown_qp", "new_counter"};

CaptureRecord record_with(std::initializer_list<std::pair<uint16_t, uint32_t>> changes) {
  CaptureRecord record;
  for (const auto& [counter, by] : changes)
    record.changes[record.change_count++] = {counter, 0, by};
  return record;
}

TEST(CaptureVerdict, SaysWhatTheCountersSay) {
  EXPECT_EQ(verdict_of(record_with({}), kCounters, nullptr), "taken");
  EXPECT_EQ(verdict_of(record_with({{0, 1}}), kCounters, nullptr), "duplicate");
  EXPECT_EQ(verdict_of(record_with({{2, 64}}), kCounters, nullptr), "64 bytes placed");
  CaptureRecord held = record_with({{1, 1}});
  held.flags = kCaptureHasExpected;
  held.expected_psn = 17;
  EXPECT_EQ(verdict_of(held, kCounters, nullptr), "held until PSN 17 has come");
  CaptureRecord early = record_with({{3, 1}});
  EXPECT_EQ(verdict_of(early, kCounters, nullptr), "refused: no such queue pair");
  early.qp_state = 1;
  EXPECT_EQ(verdict_of(early, kCounters, nullptr), "refused: its queue pair is in INIT");
  EXPECT_EQ(changes_in(record_with({{0, 1}, {4, 2}, {99, 3}}), kCounters),
            "duplicate_request 1, new_counter 2, unknown 3");
}

TEST(CaptureVerdict, NamesTheRule) {
  CaptureRecord record;
  record.impaired = kImpairedDropped;
  record.rule = 2;
  EXPECT_EQ(verdict_of(record, kCounters, nullptr), "dropped by rx impairment rule 2");
  record.direction = CaptureDirection::kSent;
  record.flags = kCaptureAtTransmit | kCaptureRetransmit;
  record.impaired = kImpairedCopy | kImpairedRateDropped;
  EXPECT_EQ(
      verdict_of(record, kCounters, nullptr),
      "copy made by tx impairment rule 2, dropped by tx impairment rule 2: its queue is full, "
      "retransmission");
  record.impaired = 0;
  EXPECT_EQ(verdict_of(record, kCounters, nullptr), "retransmission");
  record.flags = kCaptureAtTransmit;
  EXPECT_EQ(verdict_of(record, kCounters, nullptr), "sent");
}

// ---- filters

Expected<CaptureFilter, std::string> filter(std::vector<std::string> words) {
  return parse_capture_filter(words);
}

TEST(CaptureFilterWords, ChooseWhatHoldsInAll) {
  CaptureRecord record;
  std::vector<std::byte> bytes = packet_of(8, record);
  const uint32_t frame_bytes = make_frame(record, bytes);
  const auto p = headers_in(bytes, frame_bytes);
  ASSERT_TRUE(p);
  const auto wants = [&](std::vector<std::string> words) {
    const auto parsed = filter(std::move(words));
    EXPECT_TRUE(parsed.has_value());
    return parsed && parsed->wants(&*p, "duplicate [duplicate_request 1]");
  };
  EXPECT_TRUE(wants({}));
  EXPECT_TRUE(wants({"qp", "0x10010"}));
  EXPECT_TRUE(wants({"qp", "131104"})) << "the source";
  EXPECT_FALSE(wants({"qp", "0x10011"}));
  EXPECT_TRUE(wants({"peer", "10.0.0.1", "and", "opcode", "send"}));
  EXPECT_TRUE(wants({"peer", "10.0.0.2", "verdict", "Duplicate"}));
  EXPECT_TRUE(wants({"verdict", "duplicate_request"}));
  EXPECT_FALSE(wants({"peer", "10.0.0.3"}));
  EXPECT_FALSE(wants({"opcode", "READ"}));
  EXPECT_FALSE(wants({"opcode", "SEND", "verdict", "dropped"}));
  EXPECT_FALSE(filter({"qp", "1"})->wants(nullptr, "taken")) << "no headers";
  EXPECT_TRUE(filter({"verdict", "taken"})->wants(nullptr, "taken"));
}

TEST(CaptureFilterWords, ErrorsNameTheWord) {
  const auto error = [](std::vector<std::string> words) {
    const auto parsed = filter(std::move(words));
    return parsed ? std::string("accepted") : parsed.error();
  };
  EXPECT_NE(error({"qp"}).find("\"qp\" needs a value"), std::string::npos);
  EXPECT_NE(error({"qp", "0x1000000"}).find("0x1000000"), std::string::npos);
  EXPECT_NE(error({"qp", "12x"}).find("12x"), std::string::npos);
  EXPECT_NE(error({"peer", "10.0.0"}).find("10.0.0"), std::string::npos);
  EXPECT_NE(error({"opcode", "FOO"}).find("FOO"), std::string::npos);
  EXPECT_NE(error({"qp", "1", "or", "qp"}).find("\"or\" found"), std::string::npos);
  EXPECT_NE(error({"qp", "1", "and"}).find("the end"), std::string::npos);
}

TEST(CaptureOptions, TimesAndSizes) {
  EXPECT_EQ(parse_duration_ns("10"), 10'000'000'000u);
  EXPECT_EQ(parse_duration_ns("10s"), 10'000'000'000u);
  EXPECT_EQ(parse_duration_ns("500ms"), 500'000'000u);
  EXPECT_EQ(parse_duration_ns("2m"), 120'000'000'000u);
  for (const char* text : {"", "s", "1x", "0.1", "-1", "99999999999999999h"})
    EXPECT_EQ(parse_duration_ns(text), std::nullopt) << text;
  EXPECT_EQ(parse_bytes("64M"), uint64_t{64} << 20);
  EXPECT_EQ(parse_bytes("4096"), 4096u);
  EXPECT_EQ(parse_bytes("M"), std::nullopt);
}

}  // namespace
}  // namespace hostnic::cli
