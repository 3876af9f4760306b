// SPDX-License-Identifier: BSD-3-Clause
// NICs on a switch (docs/impairments.md): an incast, a flow beside it, and several paths of which
// one is slow or black.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/sim/network.h"
#include "tests/sim/pair.h"

namespace hostnic::sim {
namespace {

constexpr double kGigabits = 10;
// The part of the rate that is left for payload: headers take the rest.
constexpr double kGoodput = kGigabits * 0.97;

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

// How far a sender may be from the mean. DCQCN and MRC's windows come within a tenth; those of the
// native transport don't: a threshold marks all of them alike, and none finds its share.
double most_unfair(Transport transport) { return transport == Transport::kHostnic ? 1.8 : 1.1; }

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

// What three paths take is more than what the port does, unless the paths that are left have to
// carry too much of the sixteen entropy values.
TEST_F(SwitchPaths, MrcGoesOnBesideABlackOne) {
  Network network(Transport::kMrc, 2, kFourPaths);
  network.add({0, 1});
  const std::vector<double> rates = rates_around(network, "tx blackhole path 2");
  tell(fmt::format("before, behind, later:{}; paths lost {}{}", text_of(rates),
                   network.world().sum(Counter::mrc_paths_lost), text_of_paths(network, 1)));
  EXPECT_GT(rates[0], 0.9 * kGoodput);
  EXPECT_GT(rates[1], 0.75 * rates[0]);
  EXPECT_GT(rates[2], 0.75 * rates[0]);
}

TEST_F(SwitchPaths, MrcGoesOnBesideASlowOne) {
  Network network(Transport::kMrc, 2, kFourPaths);
  network.add({0, 1});
  const std::vector<double> rates = rates_around(network, "tx rate 500Mbit queue 64 ecn 16 path 2");
  tell(fmt::format("before, behind, later:{}{}", text_of(rates), text_of_paths(network, 1)));
  EXPECT_GT(rates[0], 0.9 * kGoodput);
  EXPECT_GT(rates[1], 0.7 * rates[0]);
  EXPECT_GT(rates[2], 0.7 * rates[0]);
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
    EXPECT_GT(sum(rates), 0.95 * kGoodput);
  }
}

// A switch whose queue is so short that most of a message is trimmed.
WorldSettings trimming() {
  WorldSettings settings;
  settings.transport = Transport::kMrc;
  settings.network_switch = "rate 1Gbit queue 2 trim";
  return settings;
}

// A trimmed packet that is done with refers to its sender's memory no more.
TEST(SwitchTrims, NoMemoryStaysReferredTo) {
  Pair pair({}, trimming());
  pair.post(SendOp::kWrite, 1, pair.at(0, 200 * 4096));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, 200 * 4096));
  EXPECT_GT(pair.far_counter(Counter::mrc_trimmed), 0u);
  pair.world.run_for(kMillisecond);
  EXPECT_FALSE(pair.world.mrs().referenced(pair.lkey)) << "it could never be deregistered";
}

// The NIC tells of each, so that the driver need not find out.
TEST(SwitchTrims, TheDriverIsToldWhatWasTrimmed) {
  Pair pair({}, trimming());
  pair.post(SendOp::kWrite, 1, pair.at(0, 200 * 4096));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  const QpStatus& status = pair.near->host->channel().qp_status(0);
  EXPECT_GT(pair.near_counter(Counter::mrc_nacks_received), 0u);
  EXPECT_GE(status.losses_reported, pair.near_counter(Counter::mrc_nacks_received) / 2);
  EXPECT_EQ(pair.near_counter(Counter::repeated_timeout), 0u);
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
