// Random work under every kind of bad network: seeds decide about everything. A failure names the
// command that repeats it.
#include <gtest/gtest.h>

#include "tests/sim/options.h"
#include "tests/sim/traffic.h"

namespace hostnic::sim {
namespace {

struct Profile {
  const char* name;
  const char* impairment;
  bool small_pools = false;
};

void PrintTo(const Profile& profile, std::ostream* out) { *out << profile.name; }

constexpr Profile kProfiles[] = {
    {"clean", ""},
    {"drop1", "drop 1%"},
    {"drop5", "drop 5%"},
    {"drop30", "drop 30%"},
    {"duplicate", "duplicate 10%"},
    {"reorder8", "reorder 5% distance 8"},
    {"reorder64", "reorder 5% distance 64"},
    {"corrupt", "corrupt 3%"},
    {"delay", "delay 20us jitter 15us; reorder 5% delay 50us jitter 40us"},
    {"all",
     "drop 3%; duplicate 3%; corrupt 1%; reorder 3% distance 16; delay 5us jitter 4us exponential"},
    {"bursts", "drop burst p 1% r 20%"},
    {"pools", "drop 1%; reorder 2% distance 8", true},
};

// Faults end then; what is left must finish within kRecoveryNs: some tens of backed-off timeouts.
constexpr uint64_t kFaultsNs = 4 * kSecond;
constexpr uint64_t kRecoveryNs = 3 * kSecond;

WorldSettings random_world(Random& random, const Profile& profile) {
  static constexpr uint32_t kWindows[] = {32, 64, 256, 1024, 4096};
  static constexpr uint32_t kMtus[] = {256, 1024, 4096};
  WorldSettings s;
  s.hosts = static_cast<uint32_t>(random.between(2, 3));
  s.mtu_bytes = kMtus[random.below(std::size(kMtus))];
  s.windows.clear();
  for (uint32_t i = 0; i < s.hosts; ++i)
    s.windows.push_back(kWindows[random.below(std::size(kWindows))]);
  const uint64_t wire = random.below(4);  // half without ICRC, a quarter with, a quarter Ethernet
  s.link.is_wire = wire != 3;
  s.always_icrc = wire == 2;
  s.link.gigabits = random.percent(30) ? 1 : 100;
  s.link.delay_ns = random.percent(30) ? 10 * kMicrosecond : kMicrosecond / 2;
  s.link.queue_packets = random.percent(30) ? 64 : 4096;
  s.driver_waits_for_wake_up = random.percent(50);
  s.ordering = random.percent(15) ? Ordering::kStrict : Ordering::kTail;
  s.pool_scale = profile.small_pools ? 0.06 : 0.2;
  return s;
}

void run_seed(const Profile& profile, uint64_t seed) {
  Random random(seed);
  World world(random_world(random, profile));
  std::vector<std::unique_ptr<Endpoint>> ends;
  std::vector<std::unique_ptr<Traffic>> flows;
  const uint64_t pairs = random.between(1, 3);
  for (uint64_t i = 0; i < pairs; ++i) {
    QpSettings qp;
    qp.timeout = 18;  // no run of losses that a profile can bring lasts that long
    const auto first = static_cast<uint32_t>(random.below(world.host_count()));
    // One in five pairs talks to itself.
    const auto second =
        random.percent(20)
            ? first
            : (first + 1 + static_cast<uint32_t>(random.below(world.host_count() - 1))) %
                  world.host_count();
    Endpoint* pair[2];
    for (int side = 0; side < 2; ++side) {
      qp.psn = random.percent(60) ? 0xffffff - static_cast<uint32_t>(random.below(200))
                                  : static_cast<uint32_t>(random.below(1 << 24));
      qp.max_rd_atomic = static_cast<uint8_t>(random.between(1, 16));
      ends.push_back(world.make_endpoint(side == 0 ? first : second, qp));
      pair[side] = ends.back().get();
    }
    world.connect(*pair[0], *pair[1]);
    for (int side = 0; side < 2; ++side) {
      TrafficSettings traffic;
      traffic.late_receives = random.percent(40);
      traffic.reach = static_cast<Reach>(random.below(3));
      traffic.signalled_percent = random.percent(50) ? 100 : 20;
      traffic.pause_us = random.percent(50) ? 5 : 100;
      traffic.requests = 60;
      flows.push_back(
          std::make_unique<Traffic>(world, *pair[side], *pair[1 - side], traffic, random.next()));
      world.add(*flows.back());
    }
  }
  const std::string direction = random.percent(50) ? "rx " : "tx ";
  if (*profile.impairment != 0) {
    for (uint32_t host = 0; host < world.host_count(); ++host)
      world.impair(host, direction + profile.impairment, random.next());
  }
  // Programs are stopped now and then, their NICs are not.
  if (random.percent(30)) {
    for (uint32_t host = 0; host < world.host_count(); ++host)
      world.host(host).stopped_until_ns = world.now() + random.between(1, 40) * 50 * kMicrosecond;
  }
  const auto finished = [&] {
    return std::all_of(flows.begin(), flows.end(), [](const auto& f) { return f->finished(); });
  };
  if (!world.run_until(finished, kFaultsNs) && !world.failed()) {
    for (uint32_t host = 0; host < world.host_count(); ++host)
      world.impair(host, direction + "none");
    if (!world.run_until(finished, kRecoveryNs))
      world.fail("not finished long after the last fault");
  }
  if (!world.failed()) world.check_buffers();
  for (auto& flow : flows)
    if (!world.failed()) flow->check_memory();
  if (world.failed()) {
    std::string text;
    for (auto& flow : flows) text += flow->progress() + "\n";
    ADD_FAILURE() << "seed " << seed << " of profile " << profile.name << ": " << world.report()
                  << text << "repeat: sim-test --gtest_filter=*Network* --profile " << profile.name
                  << " --first-seed " << seed << " --seeds 1";
  }
}

class Network : public testing::TestWithParam<Profile> {};

TEST_P(Network, MemoryEqualsInOrderExecution) {
  if (!options().profile.empty() && options().profile != GetParam().name)
    GTEST_SKIP() << "--profile names another one";
  for (uint32_t i = 0; i < options().seeds && !HasFailure(); ++i)
    run_seed(GetParam(), options().first_seed + i);
}

INSTANTIATE_TEST_SUITE_P(Sim, Network, testing::ValuesIn(kProfiles),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hostnic::sim
