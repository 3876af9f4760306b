// SPDX-License-Identifier: BSD-3-Clause
// Lcores and programs that get no processor, on a network that loses nothing: nobody stops for
// good, nobody fails, and what only waits for a processor is not taken for lost (docs/transport.md
// rule 25).
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "dataplane/simulation/stream.h"
#include "dataplane/simulation/world.h"
#include "protocol/transport_kind.h"

namespace hostnic::sim {
namespace {

enum class Starved : uint8_t { kPrograms, kOwnNic, kEverybody };

// Keeps somebody from running for 5, 50 or 500 ms, now and then, until an end.
class Starver final : public World::Program {
 public:
  Starver(World& world, Starved whom, uint64_t seed)
      : world_(world), whom_(whom), random_(seed), next_ns_(world.now() + 100 * kMicrosecond) {}

  bool turn(TimeNs now_ns) override {
    if (now_ns < next_ns_) return false;
    static constexpr uint64_t kPausesMs[] = {5, 50, 500};
    // Long pauses are as rare as they are long, as with a scheduler that is fair in the end.
    const uint64_t draw = random_.below(100);
    const uint64_t pause_ns = kPausesMs[draw < 80 ? 0 : draw < 97 ? 1 : 2] * kMillisecond;
    Host& host = world_.host(static_cast<uint32_t>(random_.below(world_.host_count())));
    const bool starves_nic =
        whom_ == Starved::kOwnNic || (whom_ == Starved::kEverybody && random_.percent(30));
    if (whom_ == Starved::kOwnNic) {
      world_.host(0).nic_starved_until_ns = now_ns + pause_ns;
    } else if (starves_nic) {
      world_.host(host.nic_index()).nic_starved_until_ns = now_ns + pause_ns;
    } else {
      host.stopped_until_ns = now_ns + pause_ns;
    }
    next_ns_ = now_ns + random_.between(200, 8000) * kMicrosecond;
    return true;
  }
  TimeNs next_ns() const override { return next_ns_; }

 private:
  World& world_;
  const Starved whom_;
  Random random_;
  TimeNs next_ns_;
};

// A stream whose programs do nothing while they are stopped.
class StarvedStream final : public World::Program {
 public:
  StarvedStream(World& world, uint32_t near, uint32_t far, const StreamSettings& settings)
      : near_(world.make_endpoint(near)), far_(world.make_endpoint(far)) {
    world.connect(*near_, *far_);
    stream_ = std::make_unique<Stream>(*near_, *far_, settings);
    world.add(*this);
  }
  bool turn(TimeNs now_ns) override {
    const bool runs =
        now_ns >= near_->host->stopped_until_ns && now_ns >= far_->host->stopped_until_ns;
    return runs && !stream_->finished() && stream_->turn(now_ns);
  }
  TimeNs next_ns() const override { return UINT64_MAX; }
  const Stream& stream() const { return *stream_; }

 private:
  std::unique_ptr<Endpoint> near_, far_;
  std::unique_ptr<Stream> stream_;
};

using Case = std::tuple<Starved, Transport, bool /*driver waits for wake-ups*/, bool /*wire*/>;

class Starvation : public testing::TestWithParam<Case> {};

TEST_P(Starvation, StopsNobodyForGood) {
  const auto& [whom, transport, waits, on_wire] = GetParam();
  constexpr uint64_t kSeeds = 3;
  uint64_t resent = 0, sent = 0, took_ns = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    WorldSettings settings;
    settings.more_clients_of = {0, 1, 0, 1};
    settings.transport = transport;
    settings.driver_waits_for_wake_up = waits;
    settings.segmentation = on_wire;
    settings.link.is_wire = on_wire;
    settings.link.gigabits = 4;
    settings.trace = false;
    World world(settings);
    std::vector<std::unique_ptr<StarvedStream>> streams;
    const auto add = [&](uint32_t near, uint32_t far, SendOp op, uint32_t bytes, uint32_t depth,
                         uint32_t messages) {
      streams.push_back(std::make_unique<StarvedStream>(
          world, near, far,
          StreamSettings{.op = op, .message_bytes = bytes, .depth = depth, .messages = messages}));
    };
    static constexpr uint32_t kPrograms[][2] = {{0, 1}, {2, 3}, {5, 4}};
    for (const auto& [near, far] : kPrograms) {
      for (uint32_t i = 0; i < 6; ++i) add(near, far, SendOp::kSend, 32, 4, 400);
      add(near, far, SendOp::kWrite, 64 << 10, 4, 100);
      add(near, far, SendOp::kRead, 4096, 8, 300);
      add(near, far, SendOp::kRead, 100'000, 2, 60);
    }
    Starver starver(world, whom, seed);
    world.add(starver);
    const auto all_finished = [&] {
      return std::ranges::all_of(streams, [](const auto& one) { return one->stream().finished(); });
    };
    EXPECT_TRUE(world.run_until(all_finished, 120 * kSecond)) << "seed " << seed;
    for (size_t i = 0; i < streams.size(); ++i) {
      const Stream& stream = streams[i]->stream();
      EXPECT_FALSE(stream.failed()) << "seed " << seed << ", stream " << i << ", status "
                                    << static_cast<int>(stream.status());
      EXPECT_TRUE(stream.finished())
          << "seed " << seed << ", stream " << i << " has " << stream.timings().size();
    }
    EXPECT_FALSE(world.failed()) << world.report();
    took_ns += world.now() - kSecond;
    // That the peer's NIC is starved can't be known.
    for (uint32_t i = 0; i < world.host_count(); ++i) {
      if (whom == Starved::kOwnNic && world.host(i).nic_index() != 0) continue;
      const driver::DriverCounters counters = world.host(i).driver().counters();
      // A peer that posts no receives is asked again, by one packet, and so are stopped programs.
      resent += counters.retransmitted_packets + counters.read_repulls -
                std::min(counters.retransmitted_packets, counters.rnr_waits);
    }
    sent += world.sum(Counter::tx_packets);
    if (testing::Test::HasFailure()) break;
  }
  RecordProperty("resent", std::to_string(resent));
  RecordProperty("packets", std::to_string(sent));
  RecordProperty("took_ms", std::to_string(took_ns / kMillisecond));
  // A probe now and then is no starvation's: the queue of the link was longer than before.
  if (whom != Starved::kEverybody) {
    EXPECT_LE(resent, sent / 500);
  }
}

// As where single clients of many got nothing for good: a thousand queue pairs of one program,
// whose short messages all wait for one NIC's turns, while others' come and go, and packets get
// lost now and then. With sixty messages each, and not five, it took a processor for minutes, and
// none stopped either.
TEST_P(Starvation, StopsNoneOfAThousandQueuePairs) {
  const auto& [whom, transport, waits, on_wire] = GetParam();
  if (whom != Starved::kEverybody) return;  // a part of that
  constexpr uint32_t kQueuePairs = 1000;
  for (const uint32_t loss_percent : {0u, 1u}) {
    WorldSettings settings;
    settings.more_clients_of = {0, 1};
    settings.max_qps = 1024;
    settings.transport = transport;
    settings.driver_waits_for_wake_up = waits;
    settings.segmentation = on_wire;
    settings.link.is_wire = on_wire;
    settings.link.gigabits = 4;
    settings.trace = false;
    World world(settings);
    Random lost(11);
    if (loss_percent != 0) {
      world.wire().set_judge(
          [&](uint32_t, const wire::Packet&) { return Fate{.drop = lost.percent(loss_percent)}; });
    }
    std::vector<std::unique_ptr<StarvedStream>> streams;
    const auto add = [&](uint32_t near, uint32_t far, SendOp op, uint32_t bytes, uint32_t depth,
                         uint32_t messages) {
      streams.push_back(std::make_unique<StarvedStream>(
          world, near, far,
          StreamSettings{.op = op, .message_bytes = bytes, .depth = depth, .messages = messages}));
    };
    constexpr uint32_t kMessages = 5;
    for (uint32_t i = 0; i < kQueuePairs; ++i) add(0, 1, SendOp::kSend, 32, 2, kMessages);
    add(2, 3, SendOp::kRead, 4096, 8, 30 * kMessages);
    add(3, 2, SendOp::kWrite, 64 << 10, 4, 10 * kMessages);
    Starver starver(world, whom, 7);
    world.add(starver);
    const auto all_finished = [&] {
      return std::ranges::all_of(streams, [](const auto& one) { return one->stream().finished(); });
    };
    EXPECT_TRUE(world.run_until(all_finished, 600 * kSecond)) << "loss " << loss_percent << " %";
    size_t stopped = 0;
    for (const auto& each : streams) {
      EXPECT_FALSE(each->stream().failed()) << static_cast<int>(each->stream().status());
      stopped += !each->stream().finished();
    }
    EXPECT_EQ(stopped, 0u) << "loss " << loss_percent << " %";
    EXPECT_FALSE(world.failed()) << world.report();
    RecordProperty(loss_percent == 0 ? "took_ms" : "took_with_loss_ms",
                   std::to_string(world.now() / kMillisecond));
    if (HasFailure()) break;
  }
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  const auto& [whom, transport, waits, on_wire] = info.param;
  return fmt::format("{}{}{}{}",
                     whom == Starved::kPrograms ? "Programs"
                     : whom == Starved::kOwnNic ? "OneNic"
                                                : "Everybody",
                     transport == Transport::kRoce ? "Roce" : "Native",
                     waits ? "Sleeping" : "Polling", on_wire ? "OnTheWire" : "OnEthernet");
}

INSTANTIATE_TEST_SUITE_P(Ways, Starvation,
                         testing::Combine(testing::Values(Starved::kPrograms, Starved::kOwnNic,
                                                          Starved::kEverybody),
                                          testing::Values(Transport::kHostnic, Transport::kRoce),
                                          testing::Bool(), testing::Bool()),
                         name_of);

}  // namespace
}  // namespace hostnic::sim
