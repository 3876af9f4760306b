// SPDX-License-Identifier: BSD-3-Clause
// Segmentation offload on bad networks: each packet of a bundle has the fate that it would have had
// alone, and what survives is placed together.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/sim/pair.h"
#include "tests/sim/traffic.h"

namespace hostnic::sim {
namespace {

constexpr uint32_t kMtu = 1024;

// Random work on two connections between two hosts, whose bundles arrive as they are or as their
// packets.
struct ImpairedRun {
  ImpairedRun(bool apart, uint64_t seed, const std::string& impairment)
      : world(settings_of(apart, seed)) {
    Random random(seed);
    for (int pair = 0; pair < 2; ++pair) {
      QpSettings qp;
      qp.timeout = 20;
      qp.psn = 0xffffff - static_cast<uint32_t>(random.below(200));
      ends.push_back(world.make_endpoint(0, qp));
      ends.push_back(world.make_endpoint(1, qp));
      world.connect(*ends[2 * pair], *ends[2 * pair + 1]);
      TrafficSettings traffic;
      traffic.requests = 40;
      traffic.max_bytes = random.percent(50) ? 60'000 : 16'000;
      traffic.reach = random.percent(80) ? Reach::kMapped : Reach::kMixed;
      traffic.late_receives = random.percent(20);
      for (int side = 0; side < 2; ++side) {
        flows.push_back(std::make_unique<Traffic>(
            world, *ends[2 * pair + side], *ends[2 * pair + 1 - side], traffic, random.next()));
        world.add(*flows.back());
      }
    }
    for (uint32_t host = 0; host < 2; ++host) world.impair(host, "rx " + impairment, random.next());
  }
  static WorldSettings settings_of(bool apart, uint64_t seed) {
    WorldSettings settings;
    settings.mtu_bytes = kMtu;
    settings.segmentation = true;
    settings.link.takes_bundles_apart = apart;
    settings.policies = {seed % 5 == 0   ? wire::Policy::kGoBackN
                         : seed % 5 == 1 ? wire::Policy::kWholeMessage
                                         : wire::Policy::kSelective};
    settings.ordering = seed % 7 == 0 ? Ordering::kStrict : Ordering::kTail;
    return settings;
  }

  // Everything that is counted, of hosts and impairments, and the time that it took.
  std::string go() {
    world.run_until(
        [this] {
          return std::ranges::all_of(flows, [](const auto& flow) { return flow->finished(); });
        },
        20 * kSecond);
    std::string all = fmt::format("{} ns", world.now());
    for (uint32_t host = 0; host < 2; ++host) {
      world.host(host).nic().impairment_counters(true)->for_each(
          [&](const char* name, uint64_t value) { all += fmt::format("\n{} {}", name, value); });
      for (size_t i = 0; i < kCounterCount; ++i) {
        const auto counter = static_cast<Counter>(i);
        if (counter == Counter::rx_bundles || counter == Counter::bundle_parts) continue;
        all += fmt::format("\n{} {}", counter_name(counter), world.host(host).counter(counter));
      }
    }
    world.check_at_rest();
    for (auto& flow : flows) flow->check_memory();
    EXPECT_FALSE(world.failed()) << world.report();
    return all;
  }

  World world;
  std::vector<std::unique_ptr<Endpoint>> ends;
  std::vector<std::unique_ptr<Traffic>> flows;
};

class ImpairedBundles : public testing::TestWithParam<const char*> {};

TEST_P(ImpairedBundles, SameDecisionsAndSameCountersAsPackets) {
  uint64_t bundles = 0, parts = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ImpairedRun together(false, seed, GetParam()), apart(true, seed, GetParam());
    const std::string of_bundles = together.go(), of_packets = apart.go();
    ASSERT_EQ(of_bundles, of_packets);
    EXPECT_EQ(apart.world.sum(Counter::bundle_parts), 0u);
    bundles += together.world.sum(Counter::rx_bundles);
    parts += together.world.sum(Counter::bundle_parts);
  }
  EXPECT_GT(bundles, 300u);
  EXPECT_GT(parts, 10u);
}
INSTANTIATE_TEST_SUITE_P(Sim, ImpairedBundles,
                         testing::Values("drop 0.2%", "drop 1%", "drop 5%", "drop burst p 1% r 20%",
                                         "drop nth 40 per-qp kind data; drop every 9 kind ack",
                                         "duplicate 2%", "corrupt 1%", "reorder 3% distance 8",
                                         "reorder 2% delay 50us jitter 20us",
                                         "drop 1%; duplicate 1%; reorder 1% distance 20; corrupt "
                                         "0.5%; delay 5us 1%"),
                         [](const auto& info) { return fmt::format("{}", info.index); });

}  // namespace
}  // namespace hostnic::sim
