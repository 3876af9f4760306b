// SPDX-License-Identifier: BSD-3-Clause
// The switch (protocol/impair/switch_model.h): when packets leave it, which are dropped, marked and
// trimmed; and the words that ask for one.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "protocol/impair/stage.h"
#include "protocol/impair/switch_model.h"
#include "tests/unit/impair/testing.h"

namespace hostnic::impair {
namespace {

// ---- the words

struct Words {
  const char* text;
  const char* canonical;
};
constexpr Words kGood[] = {
    {"", "none"},
    {"none", "none"},
    {"rate 10Gbit", "rate 10Gbit queue 256"},
    {"rate 10 Gbit ecn 64 queue 128", "rate 10Gbit queue 128 ecn 64"},
    {"rate 10Gbit queue 128 ecn 64 paths 4", "rate 10Gbit queue 128 ecn 64 paths 4"},
    {"rate 10Gbit paths 64 trim path-rate 10Gbit", "rate 10Gbit queue 256 paths 64 trim"},
    {"rate 10Gbit planes 4", "rate 10Gbit queue 256 paths 4 planes 4 path-rate 2.5Gbit"},
    {"rate 10Gbit planes 2 paths 8 path-rate 10Gbit",
     "rate 10Gbit queue 256 paths 8 planes 2 path-rate 10Gbit"},
    {"rate 10Gbit planes 1 paths 8", "rate 10Gbit queue 256 paths 8"},
    {"rate 10Gbit trim path-queue 8 path-rate 2500Mbit paths 1",
     "rate 10Gbit queue 256 paths 1 path-rate 2.5Gbit path-queue 8 trim"},
};

TEST(SwitchWords, ArePrintedAndReadAgain) {
  for (const Words& words : kGood) {
    const auto spec = parse_switch(words.text);
    ASSERT_TRUE(spec) << words.text << ": " << spec.error().message();
    EXPECT_EQ(to_string(*spec), words.canonical);
    const auto again = parse_switch(to_string(*spec));
    ASSERT_TRUE(again) << words.canonical;
    EXPECT_EQ(*again, *spec);
  }
}

TEST(SwitchWords, PathsAreLikeThePortIfNothingElseIsSaid) {
  const auto spec = parse_switch("rate 10Gbit queue 128 paths 4");
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->path_bits_per_second, 10'000'000'000u);
  EXPECT_EQ(spec->path_queue_packets, 128u);
  EXPECT_EQ(spec->rate_mbps(), 10'000u);
}

struct BadWords {
  const char* text;
  size_t column;
  const char* expected;
};
constexpr BadWords kBad[] = {
    {"queue 128", 1, "rate, as in"},
    {"rate", 5, "a rate such as"},
    {"rate 10", 6, "a rate such as"},
    {"rate 1bit", 6, "a rate such as"},
    {"rate 10Gbit queue 0", 19, "from 1 to 4096"},
    {"rate 10Gbit queue 4097", 19, "from 1 to 4096"},
    {"rate 10Gbit paths 65", 19, "from 1 to 64"},
    {"rate 10Gbit queue 8 queue 8", 21, "queue only once"},
    {"rate 10Gbit trim trim", 18, "trim only once"},
    {"rate 10Gbit queue 8 ecn 8", 26, "ecn below the queue's 8 packets"},
    {"rate 10Gbit queue 8 ecn 5 paths 2 path-queue 4", 47, "ecn below the queue's 4 packets"},
    {"rate 10Gbit path-rate 1Gbit", 28, "paths N"},
    {"rate 10Gbit planes 0", 20, "planes 1, 2, 4, 8 or 16"},
    {"rate 10Gbit planes 3", 21, "planes 1, 2, 4, 8 or 16"},
    {"rate 10Gbit planes 32", 20, "planes 1, 2, 4, 8 or 16"},
    {"rate 10Gbit planes 4 paths 6", 29, "paths that planes 4 divides"},
    {"rate 10Gbit; drop 1%", 12, "queue, ecn, paths"},
    {"none at all", 6, "the end after none"},
};

TEST(SwitchWords, BadOnesSayWhereAndWhat) {
  for (const BadWords& bad : kBad) {
    const auto spec = parse_switch(bad.text);
    ASSERT_FALSE(spec) << bad.text;
    EXPECT_EQ(spec.error().column, bad.column) << bad.text;
    EXPECT_NE(spec.error().expected.find(bad.expected), std::string::npos)
        << bad.text << ": " << spec.error().message();
  }
}

TEST(SwitchWords, RulesAboutPathsWantThatPath) {
  const auto rules = parse_spec("drop 1%; blackhole path 3");
  ASSERT_TRUE(rules);
  EXPECT_EQ(why_no_path(*rules, *parse_switch("rate 10Gbit paths 4")), "");
  EXPECT_EQ(why_no_path(*rules, *parse_switch("rate 10Gbit paths 2")),
            "path 3: the switch has paths 1 to 2");
  EXPECT_NE(why_no_path(*rules, {}).find("--switch"), std::string::npos);
  EXPECT_FALSE(parse_spec("drop all path 0"));
  EXPECT_FALSE(parse_spec("drop all path 65"));
}

TEST(SwitchWords, RulesAboutPlanesWantThatPlane) {
  const auto rules = parse_spec("blackhole plane 3");
  ASSERT_TRUE(rules);
  EXPECT_EQ(to_string(*rules), "drop all plane 3");
  EXPECT_EQ(why_no_path(*rules, *parse_switch("rate 10Gbit planes 4")), "");
  EXPECT_EQ(why_no_path(*rules, *parse_switch("rate 10Gbit planes 2")),
            "plane 3: the switch has planes 1 to 2");
  EXPECT_EQ(why_no_path(*rules, *parse_switch("rate 10Gbit paths 4")),
            "plane 3: there is no switch with planes (start with --switch 'rate 10Gbit planes 4')");
  EXPECT_FALSE(parse_spec("drop all plane 0"));
  EXPECT_FALSE(parse_spec("drop all plane 17"));
}

// The sender chooses the plane by its port, and the network the path in it.
TEST(SwitchPaths, OfAPlaneAreChosenByItsPortsEvenly) {
  constexpr Ipv4Address kFrom{0x0a000001}, kTo{0x0a000002};
  constexpr PathPlan kPlan{.paths = 12, .planes = 4};
  std::map<uint32_t, uint32_t> uses;
  for (uint32_t port = 0xc000; port < 0x10000; ++port) {
    const auto source_port = static_cast<uint16_t>(port);
    const uint32_t path = path_of(kFrom, kTo, source_port, kPlan);
    ++uses[path];
    EXPECT_EQ(path, path_of(kTo, kFrom, source_port, kPlan));
    EXPECT_EQ((path - 1) / 3, port % 4);
    EXPECT_EQ(kPlan.plane_of(source_port), 1 + port % 4);
  }
  ASSERT_EQ(uses.size(), 12u);
  for (const auto& [path, count] : uses) EXPECT_NEAR(count, 16384.0 / 12, 150) << path;
}

TEST(SwitchPaths, AreChosenByAddressesAndPortEvenly) {
  constexpr Ipv4Address kFrom{0x0a000001}, kTo{0x0a000002};
  EXPECT_EQ(path_of(kFrom, kTo, 50000, {}), 0u);
  std::map<uint32_t, uint32_t> uses;
  for (uint32_t port = 0xc000; port < 0x10000; ++port)
    ++uses[path_of(kFrom, kTo, static_cast<uint16_t>(port), {.paths = 4})];
  ASSERT_EQ(uses.size(), 4u);
  for (const auto& [path, count] : uses) {
    EXPECT_TRUE(path >= 1 && path <= 4) << path;
    EXPECT_NEAR(count, 4096, 400) << path;
  }
  // One port of many hosts goes by all of them, too.
  std::set<uint32_t> of_hosts;
  for (uint32_t host = 0; host < 64; ++host)
    of_hosts.insert(path_of(Ipv4Address{0x0a000001 + host}, kTo, 50000, {.paths = 4}));
  EXPECT_EQ(of_hosts.size(), 4u);
}

TEST(SwitchPaths, RulesAreAboutAPlaneOrAPort) {
  const auto hits = [](const char* text, const PacketInfo& info) {
    TestPacketOps ops;
    ImpairmentStage stage(*parse_spec(text), 1, ops);
    EXPECT_TRUE(stage.looks_at_packets()) << text;
    EXPECT_EQ(to_string(*parse_spec(text)), text);
    stage.push(ops.make(0), info, 0);
    return stage.counters().dropped != 0;
  };
  PacketInfo info;
  info.plane = 2, info.source_port = 50002;
  EXPECT_TRUE(hits("drop all plane 2", info));
  EXPECT_FALSE(hits("drop all plane 3", info));
  EXPECT_TRUE(hits("drop all source-port 50002", info));
  EXPECT_FALSE(hits("drop all source-port 50003", info));
  EXPECT_FALSE(parse_spec("drop all source-port 0"));
  EXPECT_FALSE(parse_spec("drop all source-port 65536"));
}

TEST(SwitchPaths, RulesAreAboutOne) {
  const auto rules = parse_spec("drop all path 2");
  ASSERT_TRUE(rules);
  EXPECT_EQ(to_string(*rules), "drop all path 2");
  TestPacketOps ops;
  ImpairmentStage stage(*rules, 1, ops);
  EXPECT_TRUE(stage.looks_at_packets());
  for (int i = 0; i < 4; ++i) {
    PacketInfo info;
    info.path = static_cast<uint8_t>(i);
    stage.push(ops.make(i), info, 0);
  }
  EXPECT_EQ(ops.released, std::vector<int>{2});
  for (void* packet = nullptr; stage.pop({&packet, 1}, 0) != 0;) ops.leave(packet);
}

// ---- the model

struct Buffer {
  uint32_t number = 0;
  bool understands_trimming = true, allows_marks = true;
  bool marked = false, trimmed = false;
  uint32_t released = 0, taken = 0;
};

constexpr uint32_t kTrimmedBytes = 100;

class Bench final : public SwitchModel::Ops {
 public:
  explicit Bench(const std::string& spec) : model(*parse_switch(spec), *this) {}

  // A packet of 1250 bytes: a microsecond at 10 Gbit/s.
  Buffer& arrive(TimeNs now, uint32_t path = 0, uint32_t bytes = 1250) {
    return arrive(now, path, bytes, Buffer{});
  }
  Buffer& arrive(TimeNs now, uint32_t path, uint32_t bytes, Buffer buffer) {
    buffer.number = static_cast<uint32_t>(buffers_.size());
    buffers_.push_back(std::make_unique<Buffer>(buffer));
    Buffer& made = *buffers_.back();
    model.arrive(&made, bytes, path, now);
    return made;
  }
  // The numbers of what has left until then.
  std::vector<uint32_t> take(TimeNs now, size_t most = 64) {
    std::vector<void*> out(most);
    out.resize(model.take(out, now));
    std::vector<uint32_t> numbers;
    for (void* each : out) {
      auto* buffer = static_cast<Buffer*>(each);
      ++buffer->taken;
      numbers.push_back(buffer->number);
    }
    return numbers;
  }
  // Each packet left exactly once, or waits.
  void check() const {
    size_t inside = 0;
    for (const auto& each : buffers_) {
      EXPECT_LE(each->released + each->taken, 1u) << each->number;
      inside += each->released + each->taken == 0 ? 1 : 0;
    }
    EXPECT_EQ(inside, model.waiting());
  }

  bool mark(void* packet) override {
    auto* buffer = static_cast<Buffer*>(packet);
    return buffer->marked = buffer->allows_marks;
  }
  uint32_t trim(void* packet) override {
    auto* buffer = static_cast<Buffer*>(packet);
    buffer->trimmed = buffer->understands_trimming;
    return buffer->trimmed ? kTrimmedBytes : 0;
  }
  void release(void* packet) override { ++static_cast<Buffer*>(packet)->released; }

 private:
  std::vector<std::unique_ptr<Buffer>> buffers_;

 public:
  SwitchModel model;
};

using Numbers = std::vector<uint32_t>;

TEST(SwitchModel, PacketsLeaveAtThePortsRateInOrder) {
  Bench bench("rate 10Gbit queue 4");
  for (uint32_t i = 0; i < 3; ++i) bench.arrive(5000);
  EXPECT_EQ(bench.model.next_deadline_ns(), 6000u);
  EXPECT_EQ(bench.take(5999), Numbers{});
  EXPECT_EQ(bench.take(6000), Numbers{0});
  EXPECT_EQ(bench.take(7999), Numbers{1});
  EXPECT_EQ(bench.take(8000), Numbers{2});
  EXPECT_EQ(bench.model.next_deadline_ns(), kForever);
  EXPECT_EQ(bench.model.port().packets, 3u);
  EXPECT_EQ(bench.model.port().bytes, 3750u);
  EXPECT_EQ(bench.model.port().longest_queue, 3u);
  bench.check();
}

TEST(SwitchModel, AFullQueueDropsWhatComesLast) {
  Bench bench("rate 10Gbit queue 4");
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(bench.arrive(0).released, 0u);
  EXPECT_EQ(bench.arrive(999).released, 1u);
  EXPECT_EQ(bench.arrive(1000).released, 0u) << "the first has left";
  EXPECT_EQ(bench.take(5000), (Numbers{0, 1, 2, 3, 5}));
  EXPECT_EQ(bench.model.port().dropped, 1u);
  EXPECT_EQ(bench.model.port().packets, 5u);
  bench.check();
}

TEST(SwitchModel, WhatFindsTheQueueLongIsMarkedIfItAllowsThat) {
  Bench bench("rate 10Gbit queue 8 ecn 2");
  EXPECT_FALSE(bench.arrive(0).marked);
  EXPECT_FALSE(bench.arrive(0).marked);
  EXPECT_TRUE(bench.arrive(0).marked) << "two were there";
  EXPECT_FALSE(bench.arrive(0, 0, 1250, {.allows_marks = false}).marked);
  EXPECT_EQ(bench.model.port().marked, 1u);
  EXPECT_TRUE(bench.arrive(1999).marked);
  EXPECT_FALSE(bench.arrive(4000).marked);
  bench.check();
}

TEST(SwitchModel, PathsHaveQueuesOfTheirOwnAndMeetAtThePort) {
  Bench bench("rate 10Gbit queue 8 paths 2 path-rate 5Gbit path-queue 2");
  // Two microseconds each on the path, one at the port.
  bench.arrive(0, 1);
  bench.arrive(0, 1);
  EXPECT_EQ(bench.arrive(0, 1).released, 1u) << "that path is full";
  bench.arrive(0, 2);
  EXPECT_EQ(bench.take(2999), Numbers{});
  EXPECT_EQ(bench.take(3000), Numbers{0});
  EXPECT_EQ(bench.take(4000), Numbers{3}) << "the other path's came to the port at the same time";
  EXPECT_EQ(bench.take(5000), Numbers{1});
  EXPECT_EQ(bench.model.path(1).packets, 2u);
  EXPECT_EQ(bench.model.path(1).dropped, 1u);
  EXPECT_EQ(bench.model.path(2).packets, 1u);
  EXPECT_EQ(bench.model.path(2).longest_queue, 1u);
  EXPECT_EQ(bench.model.port().packets, 3u);
  EXPECT_EQ(bench.model.port().longest_queue, 2u);
  bench.check();
}

// What left its path before comes to the port before, also if nobody has looked meanwhile.
TEST(SwitchModel, ThePortSeesPacketsWhenTheyCome) {
  Bench bench("rate 10Gbit queue 2 paths 2 path-rate 10Gbit path-queue 8");
  for (uint32_t i = 0; i < 4; ++i) bench.arrive(0, 1);
  EXPECT_EQ(bench.take(kMaxDurationNs), (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(bench.model.port().dropped, 0u) << "one path does not fill the port";
  for (const uint32_t path : {1u, 2u})
    for (uint32_t i = 0; i < 4; ++i) bench.arrive(kMaxDurationNs, path);
  bench.take(2 * kMaxDurationNs);
  EXPECT_GT(bench.model.port().dropped, 0u) << "two do";
  EXPECT_EQ(bench.model.path(1).dropped + bench.model.path(2).dropped, 0u);
  bench.check();
}

TEST(SwitchModel, TrimmedPacketsGoBeforeTheOthers) {
  Bench bench("rate 10Gbit queue 2 trim");
  bench.arrive(0);
  bench.arrive(0);
  const Buffer& trimmed = bench.arrive(0);
  EXPECT_TRUE(trimmed.trimmed);
  EXPECT_EQ(bench.arrive(0, 0, 1250, {.understands_trimming = false}).released, 1u);
  EXPECT_EQ(bench.take(80), Numbers{2}) << "100 bytes at 10 Gbit/s";
  EXPECT_EQ(bench.take(2000), (Numbers{0, 1}));
  EXPECT_EQ(bench.model.port().trimmed, 1u);
  EXPECT_EQ(bench.model.port().dropped, 1u);
  EXPECT_EQ(bench.model.port().packets, 3u);
  bench.check();
}

TEST(SwitchModel, TrimmedPacketsTakeOfTheRate) {
  Bench bench("rate 10Gbit queue 2 trim");
  for (uint32_t i = 0; i < 3; ++i) bench.arrive(0);
  bench.take(1000);
  bench.arrive(1000);
  EXPECT_EQ(bench.take(3079), Numbers{1});
  EXPECT_EQ(bench.take(3080), Numbers{3}) << "80 ns later, for the third one's headers";
}

TEST(SwitchModel, ThereIsAnEndToHeadersToo) {
  Bench bench("rate 10Gbit queue 2 trim");
  for (uint32_t i = 0; i < 6; ++i) bench.arrive(0);
  EXPECT_EQ(bench.model.port().trimmed, 2u);
  EXPECT_EQ(bench.model.port().dropped, 2u);
  bench.check();
}

TEST(SwitchModel, ATrimmedPacketIsTrimmedOnce) {
  Bench bench("rate 10Gbit queue 8 paths 1 path-queue 1 trim");
  bench.arrive(0, 1);
  bench.arrive(0, 1);
  EXPECT_EQ(bench.take(160), Numbers{1}) << "80 ns on the path, 80 at the port";
  EXPECT_EQ(bench.model.path(1).trimmed, 1u);
  EXPECT_EQ(bench.model.port().trimmed, 0u);
  EXPECT_EQ(bench.take(2000), Numbers{0});
  bench.check();
}

TEST(SwitchModel, WhatIsNotTakenStaysAndWhatIsLeftIsReleased) {
  Bench bench("rate 10Gbit queue 8 paths 2");
  std::array<Buffer*, 6> all{};
  for (uint32_t i = 0; i < all.size(); ++i) all[i] = &bench.arrive(0, 1 + i % 2);
  EXPECT_EQ(bench.take(kMaxDurationNs, 2).size(), 2u);
  EXPECT_EQ(bench.model.waiting(), 4u);
  Buffer left;
  {
    SwitchModel model(*parse_switch("rate 1Mbit paths 2"), bench);
    model.arrive(&left, 1250, 1, 0);
  }
  EXPECT_EQ(left.released, 1u);
}

TEST(SwitchModel, TimeDoesNotGoBack) {
  Bench bench("rate 10Gbit queue 8");
  bench.arrive(5000);
  bench.arrive(1000);
  EXPECT_EQ(bench.take(7000), (Numbers{0, 1}));
}

TEST(SwitchModel, CountersAreCleared) {
  Bench bench("rate 10Gbit queue 1 paths 1");
  bench.arrive(0, 1);
  bench.arrive(0, 1);
  bench.take(kMaxDurationNs);
  bench.model.clear_counters();
  uint64_t sum = 0;
  bench.model.port().for_each([&](const char*, uint64_t value) { sum += value; });
  bench.model.path(1).for_each([&](const char*, uint64_t value) { sum += value; });
  EXPECT_EQ(sum, 0u);
}

}  // namespace
}  // namespace hostnic::impair
