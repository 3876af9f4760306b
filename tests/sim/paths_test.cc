// SPDX-License-Identifier: BSD-3-Clause
// Native queue pairs that spray their packets over several paths of a switch (docs/transport.md
// rule 37): a path that is black, one that loses, one that is slow, one that comes back, and what
// memory holds whatever the paths do.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/network.h"
#include "tests/sim/traffic.h"

namespace hostnic::sim {
namespace {

constexpr double kGigabits = 10;
// The part of the rate that is left for payload: headers take the rest.
constexpr double kGoodput = kGigabits * 0.97;
// Four paths, each with half of the port's rate, or with a quarter of it: then each one counts.
constexpr const char* kFourPaths = "rate 10Gbit queue 128 ecn 64 paths 4 path-rate 5Gbit";
constexpr const char* kFourNarrowPaths = "rate 10Gbit queue 128 ecn 64 paths 4 path-rate 2500Mbit";
// Messages of 64 KiB that are outstanding where losses are measured: 2 MiB, as in docs/recovery.md.
constexpr uint32_t kDepth = 32;
constexpr uint32_t kEndless = 1 << 20;  // messages
// More source ports than paths, since switches choose by a hash, and two ports may meet.
constexpr uint32_t kPorts = 16;

WorldSettings sprayed(const char* network_switch, std::vector<uint32_t> paths = {kPorts}) {
  WorldSettings settings = Network::with(Transport::kHostnic, 2, network_switch);
  settings.paths = std::move(paths);
  return settings;
}

std::string text_of_paths(Network& network, uint32_t host) {
  std::string text;
  for (const impair::LinkCounters& path : network.links_to(host).paths)
    text += fmt::format("; path{}", text_of(path));
  return text;
}

std::vector<PathView> paths_of(const Endpoint& end) {
  return end.host->nic().views().qp(end.qpn()).value().paths;
}
uint32_t avoided(const Endpoint& end) {
  const std::vector<PathView> paths = paths_of(end);
  return static_cast<uint32_t>(
      std::ranges::count_if(paths, [](const PathView& path) { return !path.good; }));
}

// The longest time between two completions of a stream.
uint64_t longest_gap_ns(const Stream& stream, size_t from) {
  uint64_t longest_ns = 0;
  for (size_t i = std::max<size_t>(from, 1); i < stream.timings().size(); ++i)
    longest_ns = std::max(longest_ns,
                          stream.timings()[i].completed_ns - stream.timings()[i - 1].completed_ns);
  return longest_ns;
}

TEST(Paths, AllAreTaken) {
  Network network(sprayed(kFourPaths));
  network.add({0, 1});
  network.rates(20 * kMillisecond);
  const double rate = network.rates(50 * kMillisecond)[0];
  tell(fmt::format("{:.2f} Gb/s, sent again {}{}", rate,
                   network.world().sum(Counter::retransmitted_packets), text_of_paths(network, 1)));
  EXPECT_GT(rate, 0.9 * kGoodput);
  for (const impair::LinkCounters& path : network.links_to(1).paths) EXPECT_GT(path.packets, 300u);
  const std::vector<PathView> paths = paths_of(network.endpoint(0));
  ASSERT_EQ(paths.size(), kPorts);
  for (const PathView& path : paths) {
    EXPECT_TRUE(path.good);
    EXPECT_EQ(path.lost, 0u);
  }
  // A few packets at a time are measured with, so that of some paths nothing is known for a while.
  EXPECT_GT(std::ranges::count_if(paths, [](const PathView& path) { return path.srtt_ns != 0; }),
            kPorts / 2);
}

TEST(Paths, OnePathIsAsItAlwaysWas) {
  Network network(sprayed(kFourPaths, {1}));
  network.add({0, 1});
  network.rates(10 * kMillisecond);
  EXPECT_EQ(std::ranges::count_if(network.links_to(1).paths,
                                  [](const auto& path) { return path.packets != 0; }),
            1);
  EXPECT_TRUE(paths_of(network.endpoint(0)).empty());
}

// Issue 47 wants 0.7 within a second.
TEST(Paths, ABlackOneIsAvoided) {
  Network network(sprayed(kFourNarrowPaths));
  network.add({0, 1});
  network.rates(20 * kMillisecond);
  const double before = network.rates(50 * kMillisecond)[0];
  const size_t done = network.stream(0).timings().size();
  network.world().impair(0, "tx blackhole path 2");
  const double at_once = network.rates(50 * kMillisecond)[0];
  const double later = network.rates(200 * kMillisecond)[0];
  tell(
      fmt::format("before {:.2f}, in the first 50 ms {:.2f}, later {:.2f} Gb/s; avoided {} of {}; "
                  "longest wait {} us{}",
                  before, at_once, later, avoided(network.endpoint(0)), kPorts,
                  longest_gap_ns(network.stream(0), done) / 1000, text_of_paths(network, 1)));
  EXPECT_GT(before, 0.5 * kGoodput) << "one window for all, which the fullest way's marks shrink";
  EXPECT_GT(at_once, 0.5 * before);
  EXPECT_GT(later, 0.7 * before);
  EXPECT_GT(avoided(network.endpoint(0)), 0u);
  EXPECT_LT(longest_gap_ns(network.stream(0), done), 50 * kMillisecond);
}

TEST(Paths, TheWayBackMayBeBlack) {
  Network network(sprayed(kFourPaths));
  network.add({0, 1});
  const double before = network.rates(50 * kMillisecond)[0];
  network.world().impair(1, "tx blackhole path 3");
  network.rates(20 * kMillisecond);
  const double later = network.rates(100 * kMillisecond)[0];
  tell(fmt::format("before {:.2f}, later {:.2f} Gb/s", before, later));
  EXPECT_GT(later, 0.9 * before);
}

// Probes find a path that has come back.
TEST(Paths, OneThatComesBackIsTakenAgain) {
  Network network(sprayed(kFourPaths));
  network.add({0, 1});
  const double before = network.rates(50 * kMillisecond)[0];
  network.world().impair(0, "tx blackhole path 2");
  network.rates(100 * kMillisecond);
  EXPECT_GT(avoided(network.endpoint(0)), 0u);
  network.world().impair(0, "tx none");
  network.rates(400 * kMillisecond);
  network.clear_counters();
  const double later = network.rates(50 * kMillisecond)[0];
  tell(fmt::format("before {:.2f}, later {:.2f} Gb/s{}", before, later, text_of_paths(network, 1)));
  EXPECT_EQ(avoided(network.endpoint(0)), 0u);
  EXPECT_GT(later, 0.95 * before);
  EXPECT_GT(network.links_to(1).paths[1].packets, 500u);
}

// Issue 47 wants 0.9 within a second. Less is left where each path is needed: repetitions wait in
// narrow queues, too.
TEST(Paths, OneThatLosesCostsLittle) {
  for (const char* const network_switch : {kFourPaths, kFourNarrowPaths}) {
    Network network(sprayed(network_switch));
    network.add({0, 1}, kDepth);
    network.rates(10 * kMillisecond);
    const double before = network.rates(50 * kMillisecond)[0];
    network.world().impair(0, "tx drop 5% path 2");
    network.rates(50 * kMillisecond);
    const double later = network.rates(100 * kMillisecond)[0];
    tell(
        fmt::format("before {:.2f}, later {:.2f} Gb/s; avoided {}, sent again {}, in vain {}; "
                    "timeouts {}, probes {}",
                    before, later, avoided(network.endpoint(0)),
                    network.world().sum(Counter::retransmitted_packets),
                    network.world().sum(Counter::duplicate_request),
                    network.world().sum(Counter::repeated_timeout),
                    network.world().sum(Counter::repeated_probe)));
    EXPECT_GT(later, (network_switch == kFourPaths ? 0.9 : 0.6) * before);
  }
}

// The table of docs/recovery.md: what becomes of a flow when a path of four is black, or loses 5 %.
// One that has one path is the one that the rule hits.
TEST(Paths, BesideFlowsOfOnePath) {
  struct Row {
    const char* name;
    Transport transport;
    uint32_t ports;
    wire::Policy policy;
  };
  constexpr Row kRows[] = {
      {"native, 16 paths", Transport::kHostnic, kPorts, wire::Policy::kSelective},
      {"mrc, 16 values", Transport::kMrc, kPorts, wire::Policy::kSelective},
      {"native, 1 path", Transport::kHostnic, 1, wire::Policy::kSelective},
      {"roce, holding", Transport::kRoce, 1, wire::Policy::kSelective},
      {"roce, go-back-n", Transport::kRoce, 1, wire::Policy::kGoBackN},
  };
  for (const Row& row : kRows) {
    std::string text;
    for (const char* const rule : {"blackhole", "drop 5%"}) {
      WorldSettings settings = Network::with(row.transport, 2, kFourPaths);
      if (row.transport == Transport::kMrc)
        settings.mrc_entropy_values = row.ports;
      else
        settings.paths = {row.ports};
      settings.policies = {row.policy};
      Network network(settings);
      network.add({0, 1}, kDepth);
      network.rates(20 * kMillisecond);
      const double before = network.rates(50 * kMillisecond)[0];
      const SwitchCounters links = network.links_to(1);
      const auto taken = std::ranges::max_element(links.paths, {}, &impair::LinkCounters::packets);
      const auto hit = row.ports == 1 ? taken - links.paths.begin() + 1 : 2;
      network.world().impair(0, fmt::format("tx {} path {}", rule, hit));
      const double at_once = network.rates(50 * kMillisecond)[0];
      network.rates(150 * kMillisecond);
      const double later = network.rates(200 * kMillisecond)[0];
      text += fmt::format("; {}: before {:.2f}, first 50 ms {:.2f}, later {:.2f}", rule, before,
                          at_once, later);
      if (row.ports > 1) {
        EXPECT_GT(later, 0.9 * before) << rule;
      }
    }
    tell(row.name + text);
  }
}

// One that loses more than it is worth is avoided, for good: its probes are lost as well.
TEST(Paths, OneThatLosesMuchIsAvoided) {
  Network network(sprayed(kFourPaths));
  network.add({0, 1});
  const double before = network.rates(20 * kMillisecond)[0];
  network.world().impair(0, "tx drop 40% path 2");
  network.rates(50 * kMillisecond);
  network.clear_counters();
  const double later = network.rates(100 * kMillisecond)[0];
  const SwitchCounters links = network.links_to(1);
  tell(fmt::format("before {:.2f}, later {:.2f} Gb/s; avoided {}{}", before, later,
                   avoided(network.endpoint(0)), text_of_paths(network, 1)));
  EXPECT_GT(later, 0.9 * before);
  EXPECT_LT(links.paths[1].packets * 20, links.port.packets);
}

// A path that takes many times as long as the others loses nothing, and nothing goes again for it
// once that is known.
TEST(Paths, OneThatIsSlowIsNoLoss) {
  for (const char* const delay : {"tx delay 300us path 2", "tx delay 2ms path 2"}) {
    WorldSettings settings = sprayed(kFourPaths);
    settings.windows = {4096};
    Network network(settings);
    network.add({0, 1});
    network.world().impair(0, delay);
    network.rates(100 * kMillisecond);
    network.clear_counters();
    const double rate = network.rates(100 * kMillisecond)[0];
    const uint64_t again = network.world().sum(Counter::retransmitted_packets);
    const uint64_t sent = network.links_to(1).port.packets;
    tell(fmt::format("{}: {:.2f} Gb/s, sent again {} of {}; avoided {}{}", delay, rate, again, sent,
                     avoided(network.endpoint(0)), text_of_paths(network, 1)));
    EXPECT_LT(again * 200, sent);
    EXPECT_EQ(avoided(network.endpoint(0)), 0u);
  }
}

// A loss that hits all paths alike is no path's.
TEST(Paths, WhatAllLoseIsNoPaths) {
  Network network(sprayed(kFourPaths));
  network.add({0, 1});
  network.world().impair(0, "tx drop 20%");
  network.rates(200 * kMillisecond);
  tell(fmt::format("avoided {}", avoided(network.endpoint(0))));
  EXPECT_LT(avoided(network.endpoint(0)), kPorts / 2);
}

// The peer answers all by one path, and sends by one.
TEST(Paths, ThePeerMayHaveOne) {
  Network network(sprayed(kFourPaths, {kPorts, 1}));
  network.add({0, 1});
  network.add({1, 0});
  network.rates(10 * kMillisecond);
  const std::vector<double> rates = network.rates(50 * kMillisecond);
  tell(fmt::format("by all {:.2f}, by one {:.2f} Gb/s", rates[0], rates[1]));
  EXPECT_GT(rates[0], 0.8 * kGoodput);
  EXPECT_GT(rates[1], 3.0);
  EXPECT_EQ(paths_of(network.endpoint(0)).size(), kPorts);
  EXPECT_TRUE(paths_of(network.endpoint(1)).empty());
  network.world().impair(0, "tx blackhole path 2");
  network.rates(50 * kMillisecond);
  EXPECT_GT(network.rates(50 * kMillisecond)[0], 0.7 * rates[0]);
}

// Answers to READs come by the path of their request. The first losses, before the window is known,
// have much pulled again, in order.
TEST(Paths, ReadsTakeAllOfThem) {
  Network network(sprayed(kFourPaths));
  network.add({0, 1}, {.op = SendOp::kRead, .depth = 16, .messages = kEndless});
  network.rates(10 * kMillisecond);
  const double first = network.rates(50 * kMillisecond)[0];
  const uint64_t refused = network.world().sum(Counter::read_pulls_refused);
  const double before = network.rates(50 * kMillisecond)[0];
  network.world().impair(1, "tx blackhole path 2");
  network.rates(100 * kMillisecond);
  const double later = network.rates(100 * kMillisecond)[0];
  tell(fmt::format(
      "first {:.2f}, then {:.2f}, one black {:.2f} Gb/s; avoided {}, refused {} and {}{}", first,
      before, later, avoided(network.endpoint(0)), refused,
      network.world().sum(Counter::read_pulls_refused), text_of_paths(network, 0)));
  for (const impair::LinkCounters& path : network.links_to(0).paths) EXPECT_GT(path.packets, 300u);
  EXPECT_GT(first, 0.5 * kGoodput);
  EXPECT_GT(before, 0.9 * kGoodput) << "epochs that begin one after the other take most of it";
  EXPECT_LT(refused, 100u);
  EXPECT_GT(later, 0.7 * before);
}

// One message at a time: nothing comes behind what a black path has lost, and only silence tells.
TEST(Paths, ASingleMessageFindsAnotherWay) {
  Network network(sprayed(kFourPaths));
  network.add({0, 1}, {.message_bytes = 4096, .messages = kEndless});
  network.rates(5 * kMillisecond);
  const size_t before = network.stream(0).timings().size();
  network.rates(50 * kMillisecond);
  const size_t clean = network.stream(0).timings().size() - before;
  network.world().impair(0, "tx blackhole path 2");
  network.rates(300 * kMillisecond);
  const size_t from = network.stream(0).timings().size();
  network.rates(50 * kMillisecond);
  const size_t later = network.stream(0).timings().size() - from;
  tell(fmt::format("{} messages before, {} later; avoided {}", clean, later,
                   avoided(network.endpoint(0))));
  EXPECT_GT(static_cast<double>(later), 0.7 * static_cast<double>(clean));
}

// What goes first by a path is lost, before any round trip is measured, so that time says nothing
// of what was overtaken: probes and timeouts have to find it.
TEST(Paths, TheFirstBurstMayMeetABlackOne) {
  struct Burst {
    uint32_t message_bytes, messages;
  };
  for (const Burst burst : {Burst{4096, 1}, Burst{32 * 1024, 1}, Burst{64 * 1024, 8}}) {
    uint32_t hit = 0;
    for (uint32_t black = 1; black <= 4; ++black) {
      Network network(sprayed(kFourPaths, {4}));
      network.world().impair(0, fmt::format("tx blackhole path {}", black));
      network.add({0, 1}, {.message_bytes = burst.message_bytes,
                           .depth = burst.messages,
                           .messages = burst.messages});
      const uint64_t took_ns = network.run_to_end(kSecond);
      const uint64_t again = network.world().sum(Counter::retransmitted_packets);
      tell(fmt::format("{} x {} bytes, path {} black: {} us, sent again {}, timeouts {}, probes {}",
                       burst.messages, burst.message_bytes, black, took_ns / 1000, again,
                       network.world().sum(Counter::repeated_timeout),
                       network.world().sum(Counter::repeated_probe)));
      EXPECT_LT(took_ns, 20 * kMillisecond);
      if (again != 0) ++hit;
    }
    EXPECT_GT(hit, 0u) << "some path is that of the first packet";
  }
}

// Memory is what in-order execution makes of it, whatever the paths do (tests/sim/traffic.h).
class PathsOracle : public testing::TestWithParam<int> {};

TEST_P(PathsOracle, DataAreRight) {
  static constexpr const char* kRules[] = {
      "tx delay 40us jitter 30us path 1; reorder 5% distance 8; duplicate 3%",
      "tx drop 5% path 2; duplicate 5%; corrupt 2%; reorder 5% delay 30us jitter 30us",
      "tx blackhole path 1; drop 1%; corrupt 1%; reorder 3% distance 16",
      "tx drop 20% path 3; delay 200us path 2; corrupt 3%; duplicate 10%"};
  const auto seed = static_cast<uint64_t>(GetParam());
  Random random(seed);
  WorldSettings settings;
  settings.network_switch = random.percent(70) ? kFourPaths : "";
  settings.paths = {2 + static_cast<uint32_t>(random.below(kPorts - 1)),
                    1 + static_cast<uint32_t>(random.below(kPorts))};
  settings.segmentation = random.percent(50);
  settings.always_icrc = random.percent(30);
  settings.mtu_bytes = random.percent(50) ? 1024 : 4096;
  if (random.percent(30)) settings.windows = {64};
  settings.driver_waits_for_wake_up = random.percent(50);
  World world(settings);
  QpSettings qp;
  qp.timeout = 20;
  qp.psn = 0xffffff - static_cast<uint32_t>(random.below(200));
  auto near = world.make_endpoint(0, qp), far = world.make_endpoint(1, qp);
  world.connect(*near, *far);
  std::vector<std::unique_ptr<Traffic>> flows;
  for (int side = 0; side < 2; ++side) {
    TrafficSettings traffic;
    traffic.late_receives = random.percent(40);
    traffic.requests = 80;
    traffic.max_bytes = 128 * 1024;
    flows.push_back(std::make_unique<Traffic>(world, side == 0 ? *near : *far,
                                              side == 0 ? *far : *near, traffic, random.next()));
    world.add(*flows.back());
  }
  for (uint32_t host = 0; host < 2; ++host) {
    std::string rule = kRules[random.below(std::size(kRules))];
    // Without a switch there is no path to choose by.
    for (size_t at;
         settings.network_switch.empty() && (at = rule.find(" path ")) != std::string::npos;)
      rule.replace(at, 7, rule.compare(0, 12, "tx blackhole") == 0 ? " to 1ms" : "");
    world.impair(host, rule, seed + host);
  }
  const bool done = world.run_until(
      [&] { return std::ranges::all_of(flows, [](const auto& flow) { return flow->finished(); }); },
      20 * kSecond);
  EXPECT_TRUE(done || world.failed()) << flows[0]->progress() << flows[1]->progress();
  for (const auto& flow : flows) flow->check_memory();
  EXPECT_FALSE(world.failed()) << world.report();
}
INSTANTIATE_TEST_SUITE_P(Seeds, PathsOracle, testing::Range(1, 25));

}  // namespace
}  // namespace hostnic::sim
