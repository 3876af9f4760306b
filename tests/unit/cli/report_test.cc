// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <memory>

#include "dataplane/cli/pcapng.h"
#include "dataplane/cli/pcapng_reader.h"
#include "dataplane/cli/report_data.h"

namespace hostnic::cli {
namespace {

constexpr Ipv4Address kA{0x7f4d0001}, kB{0x7f4d0002};
constexpr uint32_t kQpA = 0x11, kQpB = 0x22;

wire::Packet send_packet(uint32_t psn, uint16_t bytes, bool more = false, bool cont = false) {
  wire::Packet p;
  p.opcode = wire::Opcode::kSend;
  p.src_ip = kA;
  p.dst_ip = kB;
  p.src_qpn = Qpn{kQpA};
  p.dest_qpn = Qpn{kQpB};
  p.psn = Psn(psn);
  p.payload_bytes = bytes;
  p.more = more;
  p.cont = cont;
  return p;
}

wire::Packet ack_packet(uint32_t base) {
  wire::Packet p;
  p.opcode = wire::Opcode::kAck;
  p.src_ip = kB;
  p.dst_ip = kA;
  p.src_qpn = Qpn{kQpB};
  p.dest_qpn = Qpn{kQpA};
  p.sack.base = p.psn = Psn(base);
  return p;
}

// Two NICs, both captured: hnic0 is A's, hnic1 B's.
class Report : public ::testing::Test {
 protected:
  Report() {
    data_.add_interface("hnic0", "127.77.0.1 wire");
    data_.add_interface("hnic1", "127.77.0.2 wire");
  }
  void sent(TimeNs at_ns, const wire::Packet& p, std::string_view verdict = "sent") {
    data_.add({raw(p.src_ip) == raw(kA) ? 0u : 1u, at_ns, true, p, verdict});
  }
  void received(TimeNs at_ns, const wire::Packet& p, std::string_view verdict) {
    data_.add({raw(p.dst_ip) == raw(kA) ? 0u : 1u, at_ns, false, p, verdict});
  }
  std::string json() {
    data_.finish();
    return data_.to_json(
        {.title = "t", .made_by = "hostnic", .programs = {}, .errors = {}, .times = times_});
  }
  // The text behind a member's name, up to the end of its line.
  std::string part(const std::string& name) {
    const std::string all = json();
    const size_t at = all.find("\"" + name + "\":");
    return at == std::string::npos ? "" : all.substr(at, all.find('\n', at) - at);
  }
  ReportData data_;
  std::string times_;  // JSON about traced messages
};

using ::testing::Test;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(Report, AnArrowGoesFromWhereAPacketLeftToWhereItArrived) {
  sent(1000, send_packet(7, 100));
  received(3500, send_packet(7, 100), "100 bytes placed [bytes_copied_mapped 100]");
  sent(4000, ack_packet(8), "sent");
  received(4600, ack_packet(8), "taken");
  const std::string arrows = part("arrows");
  // from, to, opcode, PSN, QP, source QP, bytes, sent, received, flags, text
  EXPECT_TRUE(contains(arrows, "[0,1,193,7,34,17,100,0,2500,0,")) << arrows;
  EXPECT_TRUE(contains(arrows, "[1,0,232,8,17,34,0,3000,3600,0,")) << arrows;
  EXPECT_TRUE(contains(json(), "\"lost\":0,")) << json();
}

TEST_F(Report, APacketThatWasDroppedOnPurposeIsLostAndItsRepetitionSaysWhy) {
  sent(1000, send_packet(7, 100));
  received(2000, send_packet(7, 100), "dropped by rx impairment rule 1");
  wire::Packet again = send_packet(7, 100);
  again.attempt = 1;
  sent(51000, again, "retransmission");
  received(52000, again, "100 bytes placed");
  const std::string arrows = part("arrows");
  EXPECT_TRUE(contains(arrows, "[0,1,193,7,34,17,100,0,1000,1,")) << "lost: " << arrows;
  EXPECT_TRUE(contains(arrows, "[0,1,193,7,34,17,100,50000,51000,2,")) << "again: " << arrows;
  EXPECT_TRUE(contains(part("causes"),
                       "{\"cause\":\"dropped by rx impairment rule N\",\"count\":1,"
                       "\"total_ns\":50000,\"max_ns\":50000}"))
      << part("causes");
  EXPECT_TRUE(contains(part("verbs"), "\"verb\":\"SEND\",\"messages\":1,\"bytes\":100,"))
      << "a repetition is no message: " << part("verbs");
  EXPECT_TRUE(contains(json(), "\"lost\":1,\"retransmitted\":1,")) << json();
}

TEST_F(Report, WhatIsNotSeenToArriveIsLostOnlyIfTheReceiverWasCaptured) {
  sent(1000, send_packet(7, 100));
  sent(1100, send_packet(8, 100));
  received(2000, send_packet(8, 100), "ahead of PSN 7, 100 bytes placed");
  wire::Packet elsewhere = send_packet(9, 100);
  elsewhere.dst_ip = Ipv4Address{0x0a000001};
  sent(1200, elsewhere);
  const std::string arrows = part("arrows");
  EXPECT_TRUE(contains(arrows, "[0,1,193,7,34,17,100,0,0,1,")) << arrows;
  EXPECT_TRUE(contains(arrows, "[0,1,193,8,34,17,100,100,1000,16,")) << arrows;
  EXPECT_TRUE(contains(arrows, "[0,2,193,9,34,17,100,200,0,64,")) << arrows;
  EXPECT_TRUE(contains(json(), "\"lost\":1,")) << json();
}

TEST_F(Report, ARepetitionOfWhatHadArrivedIsInVain) {
  sent(1000, send_packet(7, 100));
  received(2000, send_packet(7, 100), "100 bytes placed");
  wire::Packet again = send_packet(7, 100);
  again.attempt = 1;
  sent(9000, again, "retransmission");
  received(9500, again, "duplicate");
  EXPECT_TRUE(contains(part("causes"), "it had arrived")) << part("causes");
  EXPECT_TRUE(contains(part("verdicts"), "{\"kind\":\"duplicate\",\"count\":1,"))
      << part("verdicts");
  EXPECT_TRUE(contains(part("over_time"), "\"good_bytes\":[0,100,"))
      << "once: " << part("over_time");
}

TEST_F(Report, LatencyIsFromTheFirstPacketToTheAcknowledgement) {
  sent(1000, send_packet(7, 100, /*more=*/true));
  sent(1500, send_packet(8, 100, false, /*cont=*/true));
  received(2000, send_packet(7, 100, true), "100 bytes placed");
  received(2001, send_packet(8, 100, false, true), "100 bytes placed");
  sent(2100, ack_packet(8), "sent");
  received(2200, ack_packet(8), "taken");
  sent(2300, ack_packet(9), "sent");
  received(5096, ack_packet(9), "taken");
  // 4096 ns are the first step of the seventh doubling of 64 ns.
  EXPECT_TRUE(contains(part("verbs"),
                       "\"messages\":1,\"bytes\":200,\"measured\":1,\"p50_ns\":4096,"
                       "\"p99_ns\":4096,\"max_ns\":4096,\"steps\":[[4096,1]]"))
      << part("verbs");
}

TEST_F(Report, AReadEndsWithItsLastAnswer) {
  wire::Packet request = send_packet(3, 0);
  request.opcode = wire::Opcode::kReadRequest;
  sent(1000, request);
  received(1100, request, "answered");
  wire::Packet answer = ack_packet(0);
  answer.opcode = wire::Opcode::kReadResponse;
  answer.payload_bytes = 4096;
  answer.more = true;
  answer.psn = Psn(100);
  sent(1200, answer);
  received(1300, answer, "4096 bytes placed");
  // The acknowledgement of the request is not its end.
  sent(1350, ack_packet(4));
  received(1360, ack_packet(4), "taken");
  answer.more = false;
  answer.psn = Psn(101);
  sent(1400, answer);
  received(2024, answer, "4096 bytes placed");
  EXPECT_TRUE(contains(part("verbs"),
                       "\"verb\":\"READ\",\"messages\":1,\"bytes\":8192,"
                       "\"measured\":1,\"p50_ns\":1024,"))
      << part("verbs");
}

TEST_F(Report, TheStandardsAnswersAreOfTheQueuePairThatWaitsForThem) {
  wire::Packet request = send_packet(500, 100);
  request.opcode = wire::Opcode::kRcSendOnly;
  request.src_qpn = Qpn{};
  sent(1000, request);
  received(1100, request, "100 bytes placed");
  wire::Packet ack = ack_packet(0);
  ack.opcode = wire::Opcode::kRcAck;
  ack.src_qpn = Qpn{};
  ack.psn = Psn(500);
  sent(1200, ack);
  received(3048, ack, "taken");
  EXPECT_TRUE(contains(part("verbs"), "\"measured\":1,\"p50_ns\":2048,")) << part("verbs");
}

TEST_F(Report, IsBoundedAndSaysWhatItLeftOut) {
  const uint64_t count = ReportData::kMostArrows * 6 / 5;
  for (uint32_t i = 0; i < count; ++i) {
    sent(i * 1000 + 1, send_packet(i, 100));
    received(i * 1000 + 500, send_packet(i, 100),
             i % 1000 == 0 ? "dropped by rx impairment rule 1" : "100 bytes placed");
  }
  const std::string all = json();
  size_t arrows = 0;
  const std::string drawn = part("arrows");
  for (size_t at = drawn.find("],["); at != std::string::npos; at = drawn.find("],[", at + 1))
    ++arrows;
  EXPECT_LE(arrows, ReportData::kMostArrows);
  EXPECT_GE(arrows, ReportData::kMostArrows / 4);
  EXPECT_TRUE(contains(all, "\"arrows_of\":120000,\"every\":4,\"eventful_left_out\":0"))
      << all.substr(0, 400);
  EXPECT_TRUE(contains(all, "\"lost\":120,")) << "all are counted: " << all.substr(0, 400);
}

TEST(TimeHistogram, StepsAreFourToADoubling) {
  TimeHistogram times;
  for (const uint64_t ns : {0u, 63u, 64u, 79u, 80u, 127u, 128u, 1u << 31}) times.add(ns);
  EXPECT_EQ(times.in_step(0), 4u) << "below 80 ns";
  EXPECT_EQ(times.in_step(1), 1u);
  EXPECT_EQ(times.in_step(3), 1u);
  EXPECT_EQ(times.in_step(4), 1u);
  EXPECT_EQ(TimeHistogram::lower_ns(4), 128u);
  EXPECT_EQ(TimeHistogram::lower_ns(5), 160u);
  EXPECT_EQ(times.at_permille(500), 64u);
  EXPECT_EQ(times.at_permille(1000), uint64_t{1} << 31);
}

// ---- files

struct Closer {
  void operator()(FILE* file) const { fclose(file); }
};
using File = std::unique_ptr<FILE, Closer>;

File file_of(std::string& text) { return File(fmemopen(text.data(), text.size(), "rb")); }

std::string example_file() {
  PcapngWriter writer;
  writer.begin("test");
  writer.add_interface({.name = "hnic0", .description = "127.77.0.1 wire"});
  static constexpr std::byte kBytes[] = {std::byte{1}, std::byte{2}, std::byte{3}};
  writer.add_packet({.interface = 0,
                     .wall_ns = 0x123456789abcdef,
                     .original_bytes = 60,
                     .bytes = kBytes,
                     .sent = true,
                     .comment = "sent"});
  writer.add_statistics({.interface = 0, .received = 9, .dropped = 4, .comment = "tx_packets 1"});
  return writer.buffer();
}

TEST_F(Report, HasTheTimesOfTracedMessagesWhereThereAreAny) {
  EXPECT_EQ(json().find("\"times\""), std::string::npos);
  times_ = R"({"messages":3,"segments":[]})";
  EXPECT_NE(json().find(R"("times":{"messages":3,"segments":[]})"), std::string::npos);
}

TEST(PcapngReader, ReadsWhatTheWriterWrites) {
  std::string text = example_file();
  const File file = file_of(text);
  PcapngReader reader(file.get());
  auto item = reader.next();
  ASSERT_TRUE(item) << item.error();
  EXPECT_EQ(std::get<ReadInterface>(*item).name, "hnic0");
  item = reader.next();
  ASSERT_TRUE(item) << item.error();
  const auto& packet = std::get<ReadPacket>(*item);
  EXPECT_EQ(packet.wall_ns, 0x123456789abcdefu);
  EXPECT_EQ(packet.original_bytes, 60u);
  EXPECT_EQ(packet.bytes.size(), 3u);
  EXPECT_TRUE(packet.sent);
  EXPECT_EQ(packet.comment, "sent");
  item = reader.next();
  ASSERT_TRUE(item) << item.error();
  EXPECT_EQ(std::get<ReadStatistics>(*item).received, 9u);
  EXPECT_EQ(std::get<ReadStatistics>(*item).dropped, 4u);
  item = reader.next();
  ASSERT_TRUE(item) << item.error();
  EXPECT_TRUE(std::holds_alternative<ReadEnd>(*item));
  EXPECT_FALSE(reader.cut());
}

TEST(PcapngReader, AFileThatIsCutEndsThere) {
  const std::string whole = example_file();
  for (size_t length = 1; length < whole.size(); ++length) {
    std::string text = whole.substr(0, length);
    const File file = file_of(text);
    PcapngReader reader(file.get());
    for (int i = 0; i < 10; ++i) {
      auto item = reader.next();
      if (!item || std::holds_alternative<ReadEnd>(*item)) break;
    }
  }
}

// Every byte of a file changed in some ways: it is read, or refused, and nothing is read outside.
TEST(PcapngReader, AnyBytesAreReadOrRefused) {
  const std::string whole = example_file();
  size_t refused = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const int by : {1, 0x7f, 0x80, 0xff}) {
      std::string text = whole;
      text[at] = static_cast<char>(text[at] ^ by);
      const File file = file_of(text);
      PcapngReader reader(file.get());
      for (int i = 0; i < 10; ++i) {
        auto item = reader.next();
        if (!item) ++refused;
        if (!item || std::holds_alternative<ReadEnd>(*item)) break;
      }
    }
  }
  EXPECT_GT(refused, 100u);
}

}  // namespace
}  // namespace hostnic::cli
