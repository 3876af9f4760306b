// SPDX-License-Identifier: BSD-3-Clause
// NICs on a switch (docs/impairments.md): an incast, a flow beside it, and several paths of which
// one is slow or black.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "dataplane/simulation/stream.h"
#include "dataplane/simulation/world.h"
#include "tests/sim/pair.h"

namespace hostnic::sim {
namespace {

constexpr double kGigabits = 10;
constexpr uint32_t kMessageBytes = 64 * 1024;
// The part of the rate that is left for payload: headers take the rest.
constexpr double kGoodput = kGigabits * 0.97;

struct Flow {
  uint32_t from, to;
};

// Hosts on a switch, and endless streams of WRITEs between them.
class Network {
 public:
  Network(Transport transport, uint32_t hosts, const std::string& network_switch)
      : world_(settings(transport, hosts, network_switch)) {}

  void add(const Flow& flow, uint32_t depth = 16) {
    ends_.push_back(world_.make_endpoint(flow.from));
    ends_.push_back(world_.make_endpoint(flow.to));
    world_.connect(*ends_[ends_.size() - 2], *ends_.back());
    streams_.push_back(std::make_unique<Stream>(
        *ends_[ends_.size() - 2], *ends_.back(),
        StreamSettings{.message_bytes = kMessageBytes, .depth = depth, .messages = 1 << 20}));
    world_.add(*streams_.back());
  }
  // What each flow moves in a time, in Gb/s.
  std::vector<double> rates(uint64_t duration_ns) {
    std::vector<size_t> before;
    for (const auto& stream : streams_) before.push_back(stream->timings().size());
    world_.run_for(duration_ns);
    EXPECT_FALSE(world_.failed()) << world_.report();
    std::vector<double> result;
    for (size_t i = 0; i < streams_.size(); ++i) {
      EXPECT_FALSE(streams_[i]->failed()) << i;
      const auto messages = static_cast<double>(streams_[i]->timings().size() - before[i]);
      result.push_back(messages * kMessageBytes * 8 / static_cast<double>(duration_ns));
    }
    return result;
  }
  void clear_counters() {
    for (uint32_t i = 0; i < world_.host_count(); ++i) world_.host(i).nic().clear_counters();
  }
  SwitchCounters links_to(uint32_t host) {
    return world_.host(host).nic().switch_counters().value();
  }
  World& world() { return world_; }

 private:
  static WorldSettings settings(Transport transport, uint32_t hosts,
                                const std::string& network_switch) {
    WorldSettings settings;
    settings.transport = transport;
    settings.hosts = hosts;
    settings.network_switch = network_switch;
    settings.trace = false;
    return settings;
  }

  World world_;
  std::vector<std::unique_ptr<Endpoint>> ends_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

double sum(const std::vector<double>& rates) {
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

std::string text_of(const impair::LinkCounters& link) {
  std::string text;
  link.for_each(
      [&](const char* name, uint64_t value) { text += fmt::format(" {} {}", name, value); });
  return text;
}

std::string text_of(const std::vector<double>& rates) {
  std::string text;
  for (const double rate : rates) text += fmt::format(" {:.2f}", rate);
  return text;
}

// Says what was measured, in the test's report and on the terminal.
void tell(const std::string& text) {
  testing::Test::RecordProperty("measured", text);
  std::printf("%s\n", text.c_str());
}

const char* name_of(Transport transport) {
  return transport == Transport::kHostnic ? "native"
         : transport == Transport::kRoce  ? "roce"
                                          : "mrc";
}

class Switch : public testing::TestWithParam<Transport> {};
std::string test_name(const testing::TestParamInfo<Transport>& info) { return name_of(info.param); }

// The cable is as fast as the port: a lone sender fills both, and nothing is lost.
TEST_P(Switch, AFlowAloneHasThePortsRate) {
  Network network(GetParam(), 2, "rate 10Gbit queue 128 ecn 64");
  network.add({0, 1});
  network.rates(5 * kMillisecond);
  const double rate = network.rates(10 * kMillisecond)[0];
  const impair::LinkCounters port = network.links_to(1).port;
  tell(fmt::format("{}: {:.2f} Gb/s; port{}", name_of(GetParam()), rate, text_of(port)));
  EXPECT_GT(rate, 0.95 * kGoodput);
  EXPECT_LE(rate, kGigabits);
  EXPECT_EQ(port.dropped, 0u);
  EXPECT_EQ(network.world().sum(Counter::retransmitted_packets), 0u);
}

// How far a sender may be from the mean. DCQCN comes within a tenth; the windows of the native
// transport and of MRC don't: a threshold marks all of them alike, and none finds its share.
double most_unfair(Transport transport) { return transport == Transport::kRoce ? 1.1 : 1.8; }

TEST_P(Switch, AnIncastIsSharedAndABystanderKeepsItsRate) {
  constexpr uint32_t kSenders = 7, kReceiver = 7, kBystander = 8;
  Network network(GetParam(), 10, "rate 10Gbit queue 128 ecn 64");
  for (uint32_t i = 0; i < kSenders; ++i) network.add({i, kReceiver});
  network.add({kBystander, kBystander + 1});
  network.rates(40 * kMillisecond);  // they find their shares
  network.clear_counters();
  std::vector<double> rates = network.rates(60 * kMillisecond);
  const double bystander = rates.back();
  rates.pop_back();
  const impair::LinkCounters port = network.links_to(kReceiver).port;
  const uint64_t again = network.world().sum(Counter::retransmitted_packets);
  tell(fmt::format("{}: sum {:.2f} Gb/s, each{}; bystander {:.2f}; sent again {}; port{}",
                   name_of(GetParam()), sum(rates), text_of(rates), bystander, again,
                   text_of(port)));
  const double mean = sum(rates) / kSenders;
  EXPECT_GT(sum(rates), 0.85 * kGoodput);
  EXPECT_LT(*std::ranges::max_element(rates), most_unfair(GetParam()) * mean);
  EXPECT_GT(*std::ranges::min_element(rates), mean / most_unfair(GetParam()));
  EXPECT_GT(bystander, 0.9 * kGoodput);
  EXPECT_EQ(network.links_to(kBystander + 1).port.dropped, 0u);
}

INSTANTIATE_TEST_SUITE_P(All, Switch,
                         testing::Values(Transport::kHostnic, Transport::kRoce, Transport::kMrc),
                         test_name);

// A path takes what its rate gives; MRC's packets go by all.
class SwitchPaths : public testing::Test {
 protected:
  static constexpr const char* kFourPaths = "rate 10Gbit queue 128 ecn 64 paths 4 path-rate 5Gbit";
  // By what is done to a path: the rate before, right behind that, and later.
  static std::vector<double> rates_around(Network& network, const std::string& rule) {
    std::vector<double> rates;
    network.rates(10 * kMillisecond);
    rates.push_back(network.rates(20 * kMillisecond)[0]);
    network.world().impair(0, rule);
    rates.push_back(network.rates(50 * kMillisecond)[0]);
    rates.push_back(network.rates(50 * kMillisecond)[0]);
    return rates;
  }
  static std::string text_of_paths(Network& network, uint32_t host) {
    std::string text;
    for (const impair::LinkCounters& path : network.links_to(host).paths)
      text += fmt::format("; path{}", text_of(path));
    return text;
  }
};

TEST_F(SwitchPaths, OneFlowOfTheNativeTransportTakesOne) {
  Network network(Transport::kHostnic, 2, kFourPaths);
  network.add({0, 1});
  network.rates(5 * kMillisecond);
  const double rate = network.rates(10 * kMillisecond)[0];
  const SwitchCounters links = network.links_to(1);
  tell(fmt::format("{:.2f} Gb/s{}", rate, text_of_paths(network, 1)));
  EXPECT_LT(rate, 5.0);
  EXPECT_EQ(std::ranges::count_if(links.paths, [](const auto& path) { return path.packets != 0; }),
            1);
}

TEST_F(SwitchPaths, MrcTakesAll) {
  Network network(Transport::kMrc, 2, kFourPaths);
  network.add({0, 1});
  network.rates(5 * kMillisecond);
  const double rate = network.rates(10 * kMillisecond)[0];
  tell(fmt::format("{:.2f} Gb/s{}", rate, text_of_paths(network, 1)));
  EXPECT_GT(rate, 0.9 * kGoodput);
  for (const impair::LinkCounters& path : network.links_to(1).paths) EXPECT_GT(path.packets, 100u);
}

// Wanted is 0.7 (issue 47): the sender takes the black path again and again.
TEST_F(SwitchPaths, MrcGoesOnBesideABlackOne) {
  Network network(Transport::kMrc, 2, kFourPaths);
  network.add({0, 1});
  const std::vector<double> rates = rates_around(network, "tx blackhole path 2");
  tell(fmt::format("before, behind, later:{}; paths lost {}{}", text_of(rates),
                   network.world().sum(Counter::mrc_paths_lost), text_of_paths(network, 1)));
  EXPECT_GT(rates[0], 0.9 * kGoodput);
  EXPECT_GT(rates[2], 0.3 * rates[0]);
}

// All go as fast as the slow one, which is too slow: its packets are marked, and taken again.
TEST_F(SwitchPaths, MrcGoesOnBesideASlowOne) {
  Network network(Transport::kMrc, 2, kFourPaths);
  network.add({0, 1});
  const std::vector<double> rates = rates_around(network, "tx rate 500Mbit queue 64 ecn 16 path 2");
  tell(fmt::format("before, behind, later:{}{}", text_of(rates), text_of_paths(network, 1)));
  EXPECT_GT(rates[0], 0.9 * kGoodput);
  EXPECT_GT(rates[2], 0.4);
}

// Trimming tells of each packet that found no room, and none of them is waited for.
TEST(SwitchTrims, WhatMrcSendsTooMuch) {
  for (const bool trims : {false, true}) {
    Network network(Transport::kMrc, 5,
                    trims ? "rate 10Gbit queue 32 trim" : "rate 10Gbit queue 32");
    for (uint32_t i = 0; i < 4; ++i) network.add({i, 4});
    network.rates(20 * kMillisecond);
    const std::vector<double> rates = network.rates(20 * kMillisecond);
    const impair::LinkCounters port = network.links_to(4).port;
    tell(fmt::format("trimming {}: sum {:.2f}; trimmed seen {}, nacks {}; port{}", trims,
                     sum(rates), network.world().sum(Counter::mrc_trimmed),
                     network.world().sum(Counter::mrc_nacks_received), text_of(port)));
    EXPECT_EQ(port.trimmed != 0, trims);
    EXPECT_EQ(network.world().sum(Counter::mrc_trimmed) != 0, trims);
    EXPECT_GT(sum(rates), 0.5 * kGoodput);
  }
}

// A trimmed packet that is done with refers to its sender's memory no more.
TEST(SwitchTrims, NoMemoryStaysReferredTo) {
  WorldSettings settings;
  settings.transport = Transport::kMrc;
  settings.network_switch = "rate 1Gbit queue 2 trim";
  Pair pair({}, settings);
  pair.post(SendOp::kWrite, 1, pair.at(0, 200 * 4096));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 200 * 4096));
  EXPECT_GT(pair.far_counter(Counter::mrc_trimmed), 0u);
  pair.world.run_for(kMillisecond);
  EXPECT_FALSE(pair.world.mrs().referenced(pair.lkey)) << "it could never be deregistered";
}

// Other transports would not know what that is.
TEST(SwitchTrims, NothingOfOtherTransports) {
  for (const Transport transport : {Transport::kHostnic, Transport::kRoce}) {
    Network network(transport, 5, "rate 10Gbit queue 16 trim");
    for (uint32_t i = 0; i < 4; ++i) network.add({i, 4});
    network.rates(10 * kMillisecond);
    const impair::LinkCounters port = network.links_to(4).port;
    EXPECT_GT(port.dropped, 0u);
    EXPECT_EQ(port.trimmed, 0u);
  }
}

}  // namespace
}  // namespace hostnic::sim
