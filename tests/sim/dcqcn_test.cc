// SPDX-License-Identifier: BSD-3-Clause
// Congestion of the standard's transport (docs/roce.md): senders that share a switch's port, whose
// queue marks what it passes on; and a rate in the way of everything else that a connection does.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "dataplane/nic/packet/packet.h"
#include "dataplane/simulation/stream.h"
#include "tests/sim/pair.h"

namespace hostnic::sim {
namespace {

// The speed of links alone, and of those that lead to a switch and from it.
constexpr double kGigabits = 40, kSharedGigabits = 10;
constexpr uint32_t kMessageBytes = 64 * 1024;

WorldSettings roce(uint32_t hosts = 2) {
  WorldSettings settings;
  settings.transport = Transport::kRoce;
  settings.hosts = hosts;
  settings.link.gigabits = kGigabits;
  settings.trace = false;
  return settings;
}

uint32_t rate_mbps(const Endpoint& end) {
  return end.host->channel().qp_status(0).rate_mbps.load(std::memory_order_relaxed);
}

// What `show qp` tells of its rates: Mb/s (0: unlimited), cuts, recoveries.
using Shown = std::array<uint32_t, 3>;
Shown shown(const RateView& rate) { return {rate.mbps, rate.cuts, rate.recoveries}; }
QpView view(const Endpoint& end) { return end.host->nic().views().qp(end.qpn()).value(); }

uint64_t timeouts(Pair& pair) { return pair.near->host->driver().counters().timeouts; }

// Senders, one a host, and one host that they all send to, or read from it.
class Incast {
 public:
  explicit Incast(uint32_t senders, SendOp op = SendOp::kWrite) : world_(settings(senders)) {
    for (uint32_t i = 0; i < senders; ++i) {
      ends_.push_back(world_.make_endpoint(i));
      ends_.push_back(world_.make_endpoint(senders));
      Endpoint& sender = *ends_[2 * i];
      Endpoint& receiver = *ends_[2 * i + 1];
      world_.connect(sender, receiver);
      const bool reads = op == SendOp::kRead;
      streams_.push_back(std::make_unique<Stream>(
          reads ? receiver : sender, reads ? sender : receiver,
          StreamSettings{
              .op = op, .message_bytes = kMessageBytes, .depth = 16, .messages = 1 << 20}));
      world_.add(*streams_.back());
    }
  }
  // What each sender sends in a time, in Gb/s.
  std::vector<double> rates(uint64_t duration_ns) {
    std::vector<size_t> before;
    for (const auto& stream : streams_) before.push_back(stream->timings().size());
    world_.wire().take_longest_queue_bytes(receiver());
    world_.run_for(duration_ns);
    EXPECT_FALSE(world_.failed()) << world_.report();
    std::vector<double> result;
    for (size_t i = 0; i < streams_.size(); ++i) {
      EXPECT_FALSE(streams_[i]->failed());
      const auto messages = static_cast<double>(streams_[i]->timings().size() - before[i]);
      result.push_back(messages * kMessageBytes * 8 / static_cast<double>(duration_ns));
    }
    return result;
  }
  uint64_t longest_queue_bytes() { return world_.wire().take_longest_queue_bytes(receiver()); }
  World& world() { return world_; }
  Endpoint& sender(uint32_t index) { return *ends_[2 * index]; }

 private:
  static WorldSettings settings(uint32_t senders) {
    WorldSettings settings = roce(senders + 1);
    settings.link.gigabits = settings.link.network_switch.gigabits = kSharedGigabits;
    settings.link.queue_packets = 1 << 16;
    settings.link.queue_is_receivers = false;
    return settings;
  }
  uint32_t receiver() const { return world_.settings().hosts - 1; }

  World world_;
  std::vector<std::unique_ptr<Endpoint>> ends_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

double sum(const std::vector<double>& rates) {
  double total = 0;
  for (const double rate : rates) total += rate;
  return total;
}

class DcqcnIncast : public testing::TestWithParam<std::pair<uint32_t, SendOp>> {};

TEST_P(DcqcnIncast, SendersShareAndTheQueueIsBounded) {
  const auto [senders, op] = GetParam();
  Incast incast(senders, op);
  incast.rates(40 * kMillisecond);  // they find their shares
  const std::vector<double> rates = incast.rates(40 * kMillisecond);
  const uint64_t queue_bytes = incast.longest_queue_bytes();
  std::string text =
      fmt::format("queue {} kB, sum {:.1f} Gb/s, each", queue_bytes / 1000, sum(rates));
  for (const double rate : rates) text += fmt::format(" {:.2f}", rate);
  RecordProperty("shares", text);
  std::printf("%u senders: %s\n", senders, text.c_str());
  EXPECT_GT(sum(rates), 0.8 * kSharedGigabits);
  EXPECT_LT(*std::ranges::max_element(rates), 2 * *std::ranges::min_element(rates));
  EXPECT_LT(queue_bytes, 1'000'000u);
  EXPECT_GT(incast.world().sum(Counter::rate_cuts), senders);
}

INSTANTIATE_TEST_SUITE_P(All, DcqcnIncast,
                         testing::Values(std::pair{2u, SendOp::kWrite},
                                         std::pair{8u, SendOp::kWrite},
                                         std::pair{4u, SendOp::kRead}));

TEST(Dcqcn, OneThatStaysGetsTheWholeLinkAgain) {
  Incast incast(2);
  incast.rates(30 * kMillisecond);
  EXPECT_NE(rate_mbps(incast.sender(0)), 0u);
  incast.world().modify_state(incast.sender(1), QpState::kReset);
  incast.rates(60 * kMillisecond);
  EXPECT_GT(incast.rates(10 * kMillisecond)[0], 0.9 * kSharedGigabits);
}

// A notification, as a peer sends it that has seen a mark.
void notify(World& world, Endpoint& of, Endpoint& from) {
  rte_mbuf* packet = rte_pktmbuf_alloc(world.pools().data);
  ASSERT_NE(packet, nullptr);
  wire::Packet p;
  p.opcode = wire::Opcode::kCnp;
  p.dest_qpn = Qpn{of.qpn()};
  p.becn = true;
  p.payload_bytes = 16;
  const auto flow = wire::make_flow_template({}, {}, from.host->nic().settings().ip,
                                             of.host->nic().settings().ip, 0xc123, 0);
  auto* frame = rte_pktmbuf_mtod(packet, std::byte*);
  const size_t headers = wire::build(flow, p, false, {}, {frame, wire::kMaxHeaderBytes});
  std::memset(frame + headers, 0, p.payload_bytes);
  packet->data_len = static_cast<uint16_t>(headers + p.payload_bytes);
  packet->pkt_len = packet->data_len;
  world.wire().inject(of.host->index(), packet);
}
void slow_down(World& world, Endpoint& of, Endpoint& from, uint32_t times) {
  for (uint32_t i = 0; i < times; ++i) {
    notify(world, of, from);
    world.run_for(52 * kMicrosecond);
  }
}

TEST(Dcqcn, ARateIsShownAndCountedAndEnds) {
  Pair pair({}, roce());
  EXPECT_EQ(rate_mbps(*pair.near), 0u);
  slow_down(pair.world, *pair.near, *pair.far, 3);
  EXPECT_EQ(rate_mbps(*pair.near), 5'000u) << "40 Gb/s halved three times";
  EXPECT_EQ(shown(view(*pair.near).request_rate), (Shown{5000, 3, 0}));
  EXPECT_EQ(view(*pair.near).request_rate.alpha_permille, 1000u);
  pair.post(SendOp::kWrite, 1, pair.at(0, 4096));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_EQ(pair.near_counter(Counter::cnp_received), 3u);
  EXPECT_EQ(pair.near_counter(Counter::rate_cuts), 3u);
  pair.world.run_for(200 * kMillisecond);
  EXPECT_EQ(rate_mbps(*pair.near), 0u) << "nobody sends, and time goes by";
  pair.post(SendOp::kWrite, 2, pair.at(0, 4096));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_EQ(pair.near_counter(Counter::rate_recoveries), 1u);
  EXPECT_EQ(shown(view(*pair.near).request_rate), (Shown{0, 3, 1}));
}

// From when the last notification has come: how long a WRITE of that length takes.
uint64_t write_ns(Pair& pair, uint32_t bytes) {
  const TimeNs begin = pair.world.now();
  pair.post(SendOp::kWrite, 1, pair.at(0, bytes));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, bytes));
  return pair.world.now() - begin;
}

TEST(Dcqcn, NotificationsThatComeAtOnceCutOnce) {
  Pair pair({}, roce());
  for (uint32_t i = 0; i < 4; ++i) {
    notify(pair.world, *pair.near, *pair.far);
    pair.world.run_for(5 * kMicrosecond);
  }
  EXPECT_EQ(pair.near_counter(Counter::cnp_received), 4u);
  EXPECT_EQ(rate_mbps(*pair.near), 20'000u);
}

TEST(Dcqcn, ARateIsHeeded) {
  for (const bool waits : {false, true}) {
    WorldSettings settings = roce();
    settings.driver_waits_for_wake_up = waits;
    Pair pair({}, settings);
    constexpr uint32_t kBytes = 512 * 1024;
    const uint64_t unlimited_ns = write_ns(pair, kBytes);
    EXPECT_LT(unlimited_ns, 250 * kMicrosecond);
    slow_down(pair.world, *pair.near, *pair.far, 6);  // 625 Mb/s, the target is 1250
    const uint64_t limited_ns = write_ns(pair, kBytes);
    EXPECT_GT(limited_ns, 2 * kMillisecond) << "1.25 Gb/s and a little more: 3.4 ms";
    EXPECT_LT(limited_ns, 6 * kMillisecond);
  }
}

TEST(Dcqcn, OthersOfTheProgramAreNotHeldUp) {
  Pair pair({}, roce());
  auto other = pair.world.make_endpoint(0), others_peer = pair.world.make_endpoint(1);
  pair.world.connect(*other, *others_peer);
  slow_down(pair.world, *pair.near, *pair.far, 16);
  for (uint64_t i = 0; i < 8; ++i) pair.post(SendOp::kWrite, i, pair.at(0, 256 * 1024));
  for (uint64_t i = 0; i < 8; ++i) {
    other->post_send(Pair::request(SendOp::kWrite, 100 + i, pair.at(0, 128 * 1024),
                                   pair.remote.address(0), pair.rkey));
  }
  const TimeNs begin = pair.world.now();
  EXPECT_EQ(take_completions(pair.world, *other, *other->send_cq, 8, kSecond).size(), 8u);
  EXPECT_LT(pair.world.now() - begin, kMillisecond);
  EXPECT_TRUE(pair.sent(1, 1).empty()) << "the slow one has hardly begun";
  EXPECT_EQ(pair.sent(8).size(), 8u);
}

// What goes again leaves by the rate, too, and waiting for that is no silence of the peer's.
TEST(Dcqcn, LostPacketsGoAgainByTheRate) {
  QpSettings qp;
  qp.timeout = 8;  // 1 ms
  qp.retry_cnt = 1;
  Pair pair(qp, roce());
  pair.world.impair(1, "rx drop 20%");
  slow_down(pair.world, *pair.near, *pair.far, 16);
  EXPECT_EQ(rate_mbps(*pair.near), 1u);
  write_ns(pair, 128 * 1024);
  pair.post(SendOp::kRead, 2, pair.at(0, 128 * 1024));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
}

TEST(Dcqcn, AnswersOfReadsLeaveByTheRate) {
  for (const bool waits : {false, true}) {
    WorldSettings settings = roce();
    settings.driver_waits_for_wake_up = waits;
    Pair pair({}, settings);
    std::memset(pair.remote.data(), 0x5a, 512 * 1024);
    const auto read = [&pair](uint32_t bytes) {
      const TimeNs begin = pair.world.now();
      pair.post(SendOp::kRead, 1, pair.at(0, bytes));
      EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
      EXPECT_TRUE(equal(pair.local, 0, pair.remote, 0, bytes));
      return pair.world.now() - begin;
    };
    EXPECT_LT(read(512 * 1024), 300 * kMicrosecond);
    for (uint32_t i = 0; i < 6; ++i) {
      read(1);  // only who has answered is slowed down
      notify(pair.world, *pair.far, *pair.near);
      pair.world.run_for(50 * kMicrosecond);
    }
    const uint64_t limited_ns = read(512 * 1024);
    EXPECT_GT(limited_ns, 2 * kMillisecond);
    EXPECT_LT(limited_ns, 8 * kMillisecond);
    EXPECT_EQ(timeouts(pair), 0u);
    EXPECT_NE(view(*pair.far).answer_rate.mbps, 0u);
    pair.world.run_for(500 * kMillisecond);
    EXPECT_EQ(shown(view(*pair.far).answer_rate), (Shown{0, 6, 1}));
    pair.world.check_at_rest();
    EXPECT_FALSE(pair.world.failed()) << pair.world.report();
  }
}

TEST(Dcqcn, MarkedAnswersAreToldToWhoAnswers) {
  Pair pair({}, roce());
  pair.world.impair(0, "rx mark all kind read-response");
  pair.post(SendOp::kRead, 1, pair.at(0, 256 * 1024));
  EXPECT_EQ(pair.status_of_one(), WcStatus::kSuccess);
  EXPECT_GE(pair.near_counter(Counter::cnp_sent), 1u);
  EXPECT_EQ(pair.far_counter(Counter::cnp_received), pair.near_counter(Counter::cnp_sent));
  EXPECT_GE(pair.far_counter(Counter::rate_cuts), 1u);
}

}  // namespace
}  // namespace hostnic::sim
