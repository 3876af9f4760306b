// SPDX-License-Identifier: BSD-3-Clause
// Random work under every kind of bad network: seeds decide about everything. A failure names the
// command that repeats it.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/sim/options.h"
#include "tests/sim/traffic.h"

namespace hostnic::sim {
namespace {

// Seeds are split over several tests, which run side by side (GTEST_TOTAL_SHARDS).
constexpr uint32_t kBlocks = 4;

struct Profile {
  const char* name;
  // A seed takes one of them.
  std::vector<const char*> impairments;
  // Of `--seeds`: one seed in so many.
  uint32_t seeds_divisor = 1;
  bool small_pools = false;
};

const std::vector<Profile>& profiles() {
  static const std::vector<Profile> all = {
      {"drop",
       {"drop 0.2%", "drop 1%", "drop 5%", "drop 30%", "drop burst p 1% r 20%",
        "drop 10% kind ack,read-response", "drop last-packet once", "drop first 5 per-qp",
        "drop every 7; drop 2% kind ack"}},
      {"duplicate",
       {"duplicate 1%", "duplicate 10%", "duplicate 50%", "duplicate 30% kind data",
        "duplicate all kind read-request,atomic-request", "duplicate burst p 2% r 10%"}},
      {"reorder",
       {"reorder 5% distance 8", "reorder 5% distance 64", "reorder 20% distance 3",
        "reorder 1% distance 256", "reorder 10% delay 50us jitter 40us",
        "reorder 30% distance 2 kind ack", "reorder 20% distance 5 kind read-response"}},
      {"corrupt",
       {"corrupt 0.5%", "corrupt 3%", "corrupt 15%", "corrupt burst p 1% r 20%",
        "corrupt 20% kind ack", "corrupt 10% last-packet"}},
      {"delay",
       {"delay 20us jitter 15us; reorder 5% delay 50us jitter 40us", "delay 2ms",
        "delay 50us jitter 30us exponential", "delay 10us jitter 5us normal kind ack",
        "rate 1Gbit queue 4096", "delay 300us jitter 250us from 1ms to 3ms"}},
      {"all",
       {"drop 3%; duplicate 3%; corrupt 1%; reorder 3% distance 16; delay 5us jitter 4us "
        "exponential",
        "drop burst p 0.5% r 20%; duplicate 10%; reorder 10% delay 30us jitter 30us; corrupt 2%",
        "rate 2Gbit queue 100; drop 1%; reorder 5% distance 4; duplicate 2%; corrupt 0.5%",
        "drop 15%; duplicate 15%; corrupt 5%; reorder 15% distance 30; delay 40us jitter 20us"}},
      {"mark",
       {"mark 1%", "mark 10% kind data", "mark all kind data to 20ms", "mark 5%; drop 1%",
        "mark burst p 1% r 5%; reorder 2% distance 8"},
       4},
      {"clean", {""}, 20},
      {"pools", {"drop 1%; reorder 2% distance 8"}, 5, true},
  };
  return all;
}

// Faults end then at the latest.
// Long READs lose so many answers at a third of all packets that little gets done in it.
constexpr uint64_t kFaultsNs = kSecond;
// What is promised about the time after the last fault (docs/testing.md): so many retransmission
// timeouts, as they are backed off when the faults end, and the time that the bytes take.
constexpr uint64_t kRecoveryRtos = 4;
constexpr uint64_t kRecoverySlackNs = 5 * kMillisecond;
// Where ARP's first answers were lost, the next question comes after 10 ms and after 20 more, and
// timeouts are backed off further meanwhile.
constexpr uint64_t kAddressLostNs = 60 * kMillisecond;

WorldSettings random_world(Random& random, const Profile& profile, Transport transport) {
  static constexpr uint32_t kWindows[] = {32, 64, 256, 1024, 4096};
  static constexpr uint32_t kMtus[] = {256, 1024, 4096};
  WorldSettings s;
  s.transport = transport;
  s.hosts = static_cast<uint32_t>(random.percent(15) ? random.between(4, 6) : random.between(2, 3));
  s.mtu_bytes = kMtus[random.below(std::size(kMtus))];
  s.windows.clear();
  for (uint32_t i = 0; i < s.hosts; ++i)
    s.windows.push_back(kWindows[random.below(std::size(kWindows))]);
  // A quarter with segmentation offload, without, with ICRC, and on Ethernet.
  const uint64_t wire = random.below(4);
  s.segmentation = wire == 0;
  s.link.is_wire = wire != 3;
  s.always_icrc = wire == 2;
  s.link.gigabits = random.percent(30) ? 1 : 100;
  s.link.delay_ns = random.percent(30) ? 10 * kMicrosecond : kMicrosecond / 2;
  s.link.queue_packets = random.percent(30) ? 64 : 4096;
  s.driver_waits_for_wake_up = random.percent(50);
  s.ordering = random.percent(15) ? Ordering::kStrict : Ordering::kTail;
  s.pool_scale = profile.small_pools ? 0.06 : 0.2;
  const uint64_t policy = random.below(10);
  s.policies = {policy == 0   ? wire::Policy::kGoBackN
                : policy == 1 ? wire::Policy::kWholeMessage
                              : wire::Policy::kSelective};
  if (options().policy) s.policies = {*options().policy};
  // A receiver counts a long message in parts of half its own window. A sender whose window is
  // smaller than such a part never completes one, nor does one behind a queue that is shorter: it
  // drops the same packets of each repetition (docs/transport.md, rule 30).
  if (s.policies[0] == wire::Policy::kWholeMessage) {
    s.windows.resize(1);
    s.link.queue_packets = 4096;
  }
  // MRC counts windows in units of 128 PSNs, and has one policy.
  if (transport == Transport::kMrc) {
    s.policies = {wire::Policy::kSelective};
    for (uint32_t& window : s.windows) window = std::max(window, 128u);
  }
  // Some find out what the others speak, some of whom speak the standard's.
  if (transport == Transport::kAuto) {
    s.transport = Transport::kHostnic;
    for (uint32_t i = 0; i < s.hosts; ++i) {
      const uint64_t kind = random.below(4);
      if (kind < 2) s.auto_hosts.push_back(i);
      if (kind == 2) s.roce_hosts.push_back(i);
    }
  }
  return s;
}

// One world with its work, its network and its end.
class RandomRun {
 public:
  RandomRun(const Profile& profile, uint64_t seed, Transport transport = Transport::kHostnic)
      : profile_(profile),
        seed_(seed),
        transport_(transport),
        random_(seed),
        world_(random_world(random_, profile, transport)) {
    const uint64_t pairs = random_.percent(10) ? random_.between(4, 6) : random_.between(1, 3);
    // The larger the messages, the more of the time goes into filling and comparing memory.
    max_bytes_ = random_.percent(15) ? 256 * 1024 : 32 * 1024;
    // Questions and answers are lost, too.
    if (transport == Transport::kAuto) {
      for (uint32_t host = 0; host < world_.host_count(); ++host)
        world_.impair(host, "rx drop 10%", seed + host);
    }
    for (uint64_t i = 0; i < pairs; ++i) add_pair();
    for (uint32_t host = 0; host < world_.host_count() && transport == Transport::kAuto; ++host)
      world_.impair(host, "rx none");
    impair();
    // Programs are stopped now and then, their NICs are not.
    if (random_.percent(30)) {
      for (uint32_t host = 0; host < world_.host_count(); ++host)
        world_.host(host).stopped_until_ns =
            world_.now() + random_.between(1, 40) * 50 * kMicrosecond;
    }
  }

  void go() {
    // In some the faults end while everything is going on; and where long messages are repeated as
    // a whole, under heavy loss they never arrive.
    const bool selective = world_.settings().policies[0] == wire::Policy::kSelective;
    const uint64_t faults_ns = random_.percent(30) || !selective
                                   ? random_.between(1, 100) * 100 * kMicrosecond
                                   : kFaultsNs;
    if (!world_.run_until([this] { return finished(); }, faults_ns) && !world_.failed()) recover();
    check_end();
    if (world_.failed()) report();
  }
  World& world() { return world_; }

 private:
  void add_pair() {
    QpSettings qp;
    qp.timeout = 20;  // no run of losses that a profile can bring lasts that long
    const auto first = static_cast<uint32_t>(random_.below(world_.host_count()));
    // One in five pairs talks to itself.
    const auto second =
        random_.percent(20)
            ? first
            : (first + 1 + static_cast<uint32_t>(random_.below(world_.host_count() - 1))) %
                  world_.host_count();
    Endpoint* pair[2];
    for (int side = 0; side < 2; ++side) {
      qp.psn = random_.percent(60) ? 0xffffff - static_cast<uint32_t>(random_.below(200))
                                   : static_cast<uint32_t>(random_.below(1 << 24));
      qp.max_rd_atomic = static_cast<uint8_t>(random_.between(1, 16));
      ends_.push_back(world_.make_endpoint(side == 0 ? first : second, qp));
      pair[side] = ends_.back().get();
    }
    world_.connect(*pair[0], *pair[1]);
    for (int side = 0; side < 2; ++side) {
      TrafficSettings traffic;
      traffic.late_receives = random_.percent(40);
      traffic.reach = static_cast<Reach>(random_.below(4));
      traffic.signalled_percent = random_.percent(50) ? 100 : 20;
      traffic.pause_us = random_.percent(50) ? 5 : 100;
      traffic.short_lived_regions = random_.percent(30);
      traffic.memory_comes_back = traffic.short_lived_regions && traffic.reach == Reach::kMemFd;
      traffic.requests = 60;
      traffic.max_bytes = max_bytes_;
      flows_.push_back(
          std::make_unique<Traffic>(world_, *pair[side], *pair[1 - side], traffic, random_.next()));
      world_.add(*flows_.back());
    }
  }

  void impair() {
    direction_ = random_.percent(50) ? "rx " : "tx ";
    const std::string impairment = profile_.impairments[random_.below(profile_.impairments.size())];
    if (impairment.empty()) return;
    for (uint32_t host = 0; host < world_.host_count(); ++host)
      world_.impair(host, direction_ + impairment, random_.next());
  }

  bool finished() const {
    return std::all_of(flows_.begin(), flows_.end(), [](const auto& f) { return f->finished(); });
  }

  // Faults end and nothing new is asked for: what is left finishes in time.
  void recover() {
    note_corruption();
    for (uint32_t host = 0; host < world_.host_count(); ++host) world_.host(host).fill_all_slices();
    for (uint32_t host = 0; host < world_.host_count(); ++host)
      world_.impair(host, direction_ + "none");
    const TimeNs start = world_.now();
    uint64_t rto_ns = 0, bytes = 0;
    TimeNs from = start;
    for (uint32_t host = 0; host < world_.host_count(); ++host)
      from = std::max(from, world_.host(host).stopped_until_ns);
    for (const auto& flow : flows_) {
      rto_ns = std::max(rto_ns, flow->rto_ns());
      bytes += flow->unfinished_bytes();
      flow->stop();
    }
    const auto sending_ns =
        static_cast<uint64_t>(2 * 8 * static_cast<double>(bytes) / world_.settings().link.gigabits);
    const uint64_t limit_ns = from - start + recovery_rtos() * rto_ns + sending_ns +
                              kRecoverySlackNs +
                              (world_.settings().link.is_wire ? 0 : kAddressLostNs);
    if (!world_.run_until([this] { return finished(); }, limit_ns)) {
      world_.fail(
          fmt::format("not finished {} us after the last fault: {} timeouts of {} us and "
                      "{} us for {} bytes",
                      limit_ns / 1000, recovery_rtos(), rto_ns / 1000, sending_ns / 1000, bytes));
      return;
    }
    const uint64_t took_ns = world_.now() - std::min(world_.now(), from);
    const uint64_t beside_ns = sending_ns + kRecoverySlackNs;
    if (took_ns > beside_ns)
      longest_recovery() = std::max(longest_recovery(), static_cast<double>(took_ns - beside_ns) /
                                                            static_cast<double>(rto_ns));
  }

  // What is promised of each transport is not looked at where there are both: the standard's takes
  // longer where the queues in front of a slow link are short and its own repetitions overflow
  // them.
  uint64_t recovery_rtos() const {
    return (transport_ == Transport::kAuto ? 4 : 1) * kRecoveryRtos;
  }

  void note_corruption() {
    for (uint32_t host = 0; host < world_.host_count(); ++host) {
      for (const bool receive_side : {true, false}) {
        const auto c = world_.host(host).nic().impairment_counters(receive_side);
        if (c) corrupted_ += c->corrupted;
      }
    }
  }

  void check_end() {
    if (corrupted_ == 0) note_corruption();
    if (!world_.failed()) world_.check_at_rest();
    for (auto& flow : flows_)
      if (!world_.failed()) flow->check_memory();
    uint64_t atomics = 0;
    for (auto& flow : flows_) atomics += flow->atomics_posted();
    if (const uint64_t executed = world_.sum(Counter::atomics_executed);
        !world_.failed() && executed != atomics) {
      world_.fail(fmt::format("{} atomics were executed, {} posted", executed, atomics));
    }
    check_rejected();
  }

  // Damage is noticed, except where a byte means nothing (BTH's fifth, which no ICRC covers).
  void check_rejected() {
    const uint64_t rejected = world_.sum(Counter::rx_icrc_error) +
                              world_.sum(Counter::rx_parse_error) +
                              world_.sum(Counter::rx_not_ours);
    // An Ethernet's full queues drop damaged packets, too, and so does an impaired NIC whose wire
    // is full for long.
    const LinkSettings& link = world_.settings().link;
    if (std::string_view(profile_.name) != "corrupt" || !link.is_wire ||
        link.queue_packets < 4096 || world_.failed()) {
      return;
    }
    if (rejected + corrupted_ / 8 + 8 < corrupted_)
      world_.fail(fmt::format("{} packets were corrupted, {} refused", corrupted_, rejected));
  }

  void report() {
    std::string text;
    for (auto& flow : flows_) text += flow->progress() + "\n";
    ADD_FAILURE() << "seed " << seed_ << " of profile " << profile_.name << ": " << world_.report()
                  << text << "repeat: " << options().program << " --gtest_filter="
                  << (transport_ == Transport::kRoce   ? "*RoceNetwork*"
                      : transport_ == Transport::kMrc  ? "*MrcNetwork*"
                      : transport_ == Transport::kAuto ? "*AutoNetwork*"
                                                       : "*/Network*")
                  << " --profile " << profile_.name << " --first-seed " << seed_ << " --seeds 1"
                  << options().policy_text();
  }

 public:
  // In retransmission timeouts, of all runs.
  static double& longest_recovery() {
    static double rtos = 0;
    return rtos;
  }

 private:
  const Profile& profile_;
  const uint64_t seed_;
  const Transport transport_;
  Random random_;
  World world_;
  uint32_t max_bytes_ = 0;
  std::vector<std::unique_ptr<Endpoint>> ends_;
  std::vector<std::unique_ptr<Traffic>> flows_;
  std::string direction_;
  uint64_t corrupted_ = 0;
};

struct Block {
  size_t profile;
  uint32_t number;
};
void PrintTo(const Block& block, std::ostream* out) {
  *out << profiles()[block.profile].name << " " << block.number;
}

// One in `sparsely` of the seeds.
void run_block(const Block& block, Transport transport, uint32_t sparsely = 1) {
  const Profile& profile = profiles()[block.profile];
  if (!options().profile.empty() && options().profile != profile.name) return;
  // A named profile gets all the seeds that were asked for.
  const uint32_t divisor = options().profile.empty() ? sparsely * profile.seeds_divisor : 1;
  const uint32_t seeds = (options().seeds + divisor - 1) / divisor;
  uint32_t done = 0;
  for (uint32_t i = block.number; i < seeds && !testing::Test::HasFailure(); i += kBlocks, ++done)
    RandomRun(profile, options().first_seed + i, transport).go();
  fmt::print("{} worlds; longest recovery so far: {:.2f} timeouts\n", done,
             RandomRun::longest_recovery());
}

class Network : public testing::TestWithParam<Block> {};
class RoceNetwork : public testing::TestWithParam<Block> {};
class MrcNetwork : public testing::TestWithParam<Block> {};
class AutoNetwork : public testing::TestWithParam<Block> {};

TEST_P(Network, MemoryEqualsInOrderExecution) { run_block(GetParam(), Transport::kHostnic); }
TEST_P(RoceNetwork, MemoryEqualsInOrderExecution) { run_block(GetParam(), Transport::kRoce); }
TEST_P(MrcNetwork, MemoryEqualsInOrderExecution) { run_block(GetParam(), Transport::kMrc); }
TEST_P(AutoNetwork, MemoryEqualsInOrderExecution) { run_block(GetParam(), Transport::kAuto, 4); }

std::vector<Block> all_blocks() {
  std::vector<Block> blocks;
  for (size_t profile = 0; profile < profiles().size(); ++profile)
    for (uint32_t number = 0; number < kBlocks; ++number) blocks.push_back({profile, number});
  return blocks;
}

std::string block_name(const testing::TestParamInfo<Block>& info) {
  return fmt::format("{}_{}", profiles()[info.param.profile].name, info.param.number);
}
INSTANTIATE_TEST_SUITE_P(Sim, Network, testing::ValuesIn(all_blocks()), block_name);
INSTANTIATE_TEST_SUITE_P(Sim, RoceNetwork, testing::ValuesIn(all_blocks()), block_name);
INSTANTIATE_TEST_SUITE_P(Sim, MrcNetwork, testing::ValuesIn(all_blocks()), block_name);
INSTANTIATE_TEST_SUITE_P(Sim, AutoNetwork, testing::ValuesIn(all_blocks()), block_name);

// What "a seed repeats it" rests on.
TEST(Replay, EqualSeedsGiveEqualRuns) {
  for (const Profile& profile : profiles()) {
    std::string first;
    for (int time = 0; time < 2; ++time) {
      RandomRun run(profile, 7);
      run.go();
      std::string all = fmt::format("{} ns:", run.world().now());
      for (size_t i = 0; i < kCounterCount; ++i)
        all += fmt::format(" {}", run.world().sum(static_cast<Counter>(i)));
      if (time == 0) first = all;
      EXPECT_EQ(all, first) << profile.name;
    }
  }
}

}  // namespace
}  // namespace hostnic::sim
