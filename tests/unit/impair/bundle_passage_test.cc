// SPDX-License-Identifier: BSD-3-Clause
// The packets of a bundle have the fates that they would have had one by one.
#include "protocol/impair/bundle_passage.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/impair/testing.h"

namespace hostnic::impair {
namespace {

// What the network delivers, and in which state.
struct Delivered {
  int number = 0;
  bool is_copy = false, corrupted = false;
  bool operator==(const Delivered&) const = default;
};

// Bundles that arrive one after the other, and packets that come between them.
struct Arrivals {
  std::vector<std::vector<PacketInfo>> bundles;
  std::vector<TimeNs> at_ns;
};

Arrivals random_arrivals(Random& random) {
  constexpr PacketKind kKinds[] = {PacketKind::kWrite, PacketKind::kSend, PacketKind::kReadResponse,
                                   PacketKind::kAck};
  Arrivals arrivals;
  TimeNs now = 1000;
  uint32_t psn = 0xffff00;
  for (int i = 0; i < 25; ++i) {
    now += random.below(4) == 0 ? random.below(200'000) : random.below(2'000);
    PacketInfo info = data_packet(0);
    info.kind = kKinds[random.below(std::size(kKinds))];
    info.peer = Ipv4Address{static_cast<uint32_t>(0x0a000002 + random.below(2))};
    info.qpn = Qpn{static_cast<uint32_t>(0x10011 + random.below(3))};
    info.first_attempt = random.below(3) != 0;
    if (random.below(3) == 0) psn -= static_cast<uint32_t>(random.below(40));  // they come again
    std::vector<PacketInfo> bundle(random.below(4) == 0 ? 1 : 1 + random.below(64), info);
    for (PacketInfo& each : bundle) each.psn = Psn(psn++);
    bundle.back().last_of_message = random.below(2) == 0;
    bundle.back().bytes = static_cast<uint32_t>(60 + random.below(4096));
    arrivals.bundles.push_back(std::move(bundle));
    arrivals.at_ns.push_back(now);
  }
  return arrivals;
}

// Some of all rules that there are.
std::string random_spec(Random& random) {
  static const char* const kRules[] = {
      "drop 0.5%",
      "drop 5%",
      "drop 60%",
      "drop burst p 2% r 20%",
      "drop burst p 5% r 30% bad 50% good 1%",
      "drop nth 33",
      "drop every 17",
      "drop first 3 per-qp",
      "drop every 10 per-qp kind write,send",
      "drop last-packet once",
      "drop 20% first-attempt kind write",
      "drop 10% once",
      "drop kind ack",
      "blackhole from 30us to 60us",
      "blackhole peer 10.0.0.3",
      "drop 30% qpn 65554",
      "duplicate 2%",
      "duplicate 50% kind read-response",
      "duplicate last-packet",
      "corrupt 2%",
      "corrupt every 40",
      "mark 3%",
      "reorder 3% distance 5",
      "reorder 2% distance 100 flush 10us",
      "reorder every 30 delay 5us",
      "reorder 2% delay 20us jitter 10us normal",
      "delay 3us kind ack",
      "delay 10us jitter 5us 5%",
      "delay 1us jitter 1us exponential",
      "delay 2us jitter 2us qpn 65553",
      "rate 10Gbit queue 64",
      "rate 400Gbit",
      "rate 1Gbit queue 8 kind send",
  };
  std::string spec;
  for (uint64_t rules = 1 + random.below(4); rules != 0; --rules)
    spec += std::string(spec.empty() ? "" : "; ") + kRules[random.below(std::size(kRules))];
  return spec;
}

// A stage, and what the network has delivered by it.
class Path {
 public:
  Path(const std::string& spec, uint64_t seed) : stage(spec_of(spec), seed, ops) {}

  void one_by_one(const std::vector<PacketInfo>& bundle, TimeNs now) {
    for (const PacketInfo& info : bundle) {
      TestPacket* const packet = ops.make(next_number_++);
      if (stage.pass(packet, now, [&] { return info; })) deliver(*ops.leave(packet));
    }
    take_due(now);
  }
  void together(const std::vector<PacketInfo>& bundle, TimeNs now) {
    take_due(now);
    const int first = next_number_;
    BundlePassage passage(stage, static_cast<uint32_t>(bundle.size()));
    ops.current_number = [&] { return first + static_cast<int>(passage.current()); };
    while (!passage.done()) {
      const PacketRun run = passage.next_run(now, [&](uint32_t number) {
        EXPECT_EQ(number, passage.current());
        return bundle[number];
      });
      runs += run.count != 0;
      for (uint32_t i = 0; i < run.count; ++i)
        deliver({.number = first + static_cast<int>(run.first + i)});
      take_due(now);
    }
    next_number_ += static_cast<int>(bundle.size());
  }
  void take_due(TimeNs now) {
    void* packet = nullptr;
    while (stage.pop({&packet, 1}, now) != 0) deliver(*ops.leave(packet));
  }
  std::vector<uint64_t> counters() const {
    std::vector<uint64_t> all;
    stage.counters().for_each([&](const char*, uint64_t value) { all.push_back(value); });
    return all;
  }

  TestPacketOps ops;
  ImpairmentStage stage;
  std::vector<Delivered> delivered;
  size_t runs = 0;

 private:
  void deliver(const TestPacket& packet) {
    delivered.push_back({packet.number, packet.is_copy, packet.corrupted});
  }
  int next_number_ = 0;
};

TEST(BundlePassage, PacketsHaveTheFatesThatTheyHaveOneByOne) {
  std::vector<uint64_t> all(Path("none", 0).counters().size());
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    Random random(seed);
    const std::string spec = random_spec(random);
    SCOPED_TRACE(testing::Message() << "seed " << seed << ": " << spec);
    const Arrivals arrivals = random_arrivals(random);
    Path one_by_one(spec, seed), together(spec, seed);
    for (size_t i = 0; i < arrivals.bundles.size(); ++i) {
      one_by_one.one_by_one(arrivals.bundles[i], arrivals.at_ns[i]);
      together.together(arrivals.bundles[i], arrivals.at_ns[i]);
      ASSERT_EQ(together.stage.next_deadline_ns(), one_by_one.stage.next_deadline_ns());
    }
    for (Path* path : {&one_by_one, &together}) {
      while (path->stage.next_deadline_ns() != kForever)
        path->take_due(path->stage.next_deadline_ns());
    }
    ASSERT_EQ(together.delivered, one_by_one.delivered);
    ASSERT_EQ(together.ops.corruptions, one_by_one.ops.corruptions);
    ASSERT_EQ(together.counters(), one_by_one.counters());
    EXPECT_EQ(together.ops.inside(), 0u);
    for (size_t i = 0; i < all.size(); ++i) all[i] += together.counters()[i];
  }
  // All kinds of fates were among them.
  Path("none", 0).stage.counters().for_each([&, i = size_t{0}](const char* name, uint64_t) mutable {
    const bool rare =
        std::string_view(name) == "queue_dropped" || std::string_view(name) == "script_forgotten";
    EXPECT_TRUE(rare || all[i] > 0) << name;
    ++i;
  });
}

TEST(BundlePassage, WhatGoesOnStaysTogether) {
  struct {
    const char* spec;
    size_t runs, buffers;
  } constexpr kCases[] = {{"none", 1, 0},
                          {"drop nth 1", 1, 0},
                          {"drop nth 64", 1, 0},
                          {"drop every 16", 4, 0},
                          {"duplicate nth 20", 2, 1},
                          {"corrupt nth 20", 2, 1},
                          {"delay 1us nth 64", 1, 1},
                          {"reorder nth 20 delay 1us", 2, 1},
                          {"reorder nth 20 distance 3", 3, 1},
                          {"drop all", 0, 0}};
  for (const auto& each : kCases) {
    SCOPED_TRACE(each.spec);
    Path path(each.spec, 1);
    std::vector<PacketInfo> bundle(64, data_packet(0));
    path.together(bundle, 1000);
    EXPECT_EQ(path.runs, each.runs);
    EXPECT_EQ(path.ops.made(), each.buffers);
  }
}

// A packet that finds no buffer to wait in is lost, and those around it go on.
TEST(BundlePassage, WithoutABufferThePacketIsLost) {
  Path path("reorder nth 5 delay 1us", 1);
  path.ops.refuse_detach = true;
  path.together(std::vector<PacketInfo>(8, data_packet(0)), 1000);
  EXPECT_EQ(path.delivered.size(), 7u);
  EXPECT_EQ(path.stage.counters().queue_dropped, 1u);
  EXPECT_EQ(path.stage.queued(), 0u);
}

}  // namespace
}  // namespace hostnic::impair
