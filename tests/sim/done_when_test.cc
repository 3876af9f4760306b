// SPDX-License-Identifier: BSD-3-Clause
// What the project promises of recovery, in numbers: 100 Gb/s, a round trip of 10 us, the default
// window. bench/recovery looks at much more; this is what must not get worse (docs/transport.md
// rules 24 and 27).
#include <gtest/gtest.h>

#include <algorithm>

#include "dataplane/simulation/stream.h"
#include "tests/sim/pair.h"

namespace hostnic::sim {
namespace {

constexpr uint64_t kRttNs = 10 * kMicrosecond;
constexpr uint32_t kMtu = 4096;

WorldSettings network() {
  WorldSettings settings;
  settings.link.gigabits = 100;
  settings.link.delay_ns = kRttNs / 2;
  settings.link.queue_packets = 512;  // as the virtual wire's rings
  settings.trace = false;
  return settings;
}

struct Measured {
  double gigabits = 0;
  std::vector<uint64_t> latencies_ns;  // sorted
  uint64_t sent_packets = 0, resent_packets = 0, duplicate_packets = 0;
};

// Both directions lose; `data` is done to data alone.
Measured run(const StreamSettings& load, const std::string& loss, const std::string& data = "",
             Transport transport = Transport::kHostnic) {
  WorldSettings settings = network();
  settings.transport = transport;
  World world(settings);
  QpSettings qp;
  auto near = world.make_endpoint(0, qp), far = world.make_endpoint(1, qp);
  world.connect(*near, *far);
  if (!loss.empty()) world.impair(0, "rx drop " + loss, 11);
  if (!loss.empty() || !data.empty())
    world.impair(1, "rx " + (data.empty() ? "drop " + loss : data), 12);
  Stream stream(*near, *far, load);
  world.add(stream);
  const TimeNs start_ns = world.now();
  EXPECT_TRUE(world.run_until([&] { return stream.finished(); }, 10 * kSecond));
  EXPECT_FALSE(stream.failed()) << world.report();
  EXPECT_EQ(stream.timings().size(), load.messages);
  world.run_for(kMillisecond);  // what is still on its way counts, too
  Measured result;
  const auto duration_ns = static_cast<double>(stream.timings().back().completed_ns - start_ns);
  result.gigabits = 8.0 * load.message_bytes * load.messages / duration_ns;
  for (const Stream::Timing& timing : stream.timings())
    result.latencies_ns.push_back(timing.completed_ns - timing.posted_ns);
  std::sort(result.latencies_ns.begin(), result.latencies_ns.end());
  result.sent_packets = near->host->counter(Counter::tx_packets);
  result.resent_packets = near->host->counter(Counter::retransmitted_packets);
  result.duplicate_packets = far->host->counter(Counter::duplicate_request);
  return result;
}

constexpr StreamSettings kWrites{
    .op = SendOp::kWrite, .message_bytes = 1024 * 1024, .depth = 8, .messages = 128};

constexpr StreamSettings kReads{
    .op = SendOp::kRead, .message_bytes = 1024 * 1024, .depth = 8, .messages = 128};

void keeps_its_goodput_under_loss(const StreamSettings& load) {
  const double lossless = run(load, "").gigabits;
  EXPECT_GT(lossless, 97);
  const struct {
    const char* loss;
    double p, wanted;
  } cases[] = {{"0.1%", 0.001, 0.97}, {"1%", 0.01, 0.97}, {"5%", 0.05, 0.90}};
  for (const auto& c : cases) {
    const double fraction = run(load, c.loss).gigabits / ((1 - c.p) * lossless);
    EXPECT_GE(fraction, c.wanted) << "of (1 - p) x lossless at p = " << c.loss;
    EXPECT_LE(fraction, 1.01) << "more than there is at p = " << c.loss;
  }
}

TEST(DoneWhen, SelectiveKeepsItsGoodputUnderLoss) { keeps_its_goodput_under_loss(kWrites); }
TEST(DoneWhen, ReadsKeepTheirGoodputUnderLoss) { keeps_its_goodput_under_loss(kReads); }

// WRITEs behind READs of other bytes (rule 18), by the same key or by another one, don't wait for
// them: both directions of the link are busy at once, where waiting would make them take turns.
TEST(DoneWhen, DisjointReadsAndWritesGoOnTogether) {
  for (const Transport transport : {Transport::kHostnic, Transport::kRoce}) {
    for (const bool other_key : {false, true}) {
      const Measured both = run({.op = SendOp::kRead,
                                 .every_other_op = SendOp::kWrite,
                                 .every_other_key = other_key,
                                 .message_bytes = 65536,
                                 .depth = 16,
                                 .messages = 2048},
                                "", "", transport);
      EXPECT_GT(both.gigabits, 190);
    }
  }
}

TEST(DoneWhen, ReorderingRepeatsLittle) {
  const Measured reordered = run(kWrites, "", "reorder 5% distance 64");
  EXPECT_GE(reordered.sent_packets, uint64_t{kWrites.messages} * kWrites.message_bytes / kMtu);
  EXPECT_LT(static_cast<double>(reordered.resent_packets),
            0.005 * static_cast<double>(reordered.sent_packets));
  EXPECT_EQ(reordered.duplicate_packets, reordered.resent_packets);  // nothing was lost
}

TEST(DoneWhen, ALostSendCostsAProbe) {
  const Measured sends =
      run({.op = SendOp::kSend, .message_bytes = kMtu, .depth = 1, .messages = 2000}, "1%");
  const uint64_t probe_ns = driver::DriverSettings{}.min_probe_ns;
  const size_t rank = sends.latencies_ns.size() * 99 / 100 - 1;
  EXPECT_GT(sends.latencies_ns.back(), probe_ns) << "nothing was lost";
  EXPECT_LT(sends.latencies_ns[rank], 3 * kRttNs + probe_ns);
}

}  // namespace
}  // namespace hostnic::sim
