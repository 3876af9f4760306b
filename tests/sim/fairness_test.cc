// SPDX-License-Identifier: BSD-3-Clause
// Two programs of one NIC that want more than there is: each gets half, counted in bytes, however
// many queue pairs it has and however long its messages are (docs/architecture.md, whose turn).
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dataplane/simulation/stream.h"
#include "dataplane/simulation/world.h"
#include "verbs-shim/driver/segment_map.h"

namespace hostnic::sim {
namespace {

// What one program does: streams of equal messages between two hosts.
struct Load {
  uint32_t near, far;  // hosts; of a READ the far one sends the bytes
  uint32_t qps;
  uint32_t message_bytes;
  SendOp op = SendOp::kWrite;
  uint32_t depth = 8;
  QpType type = QpType::kRc;
};

class Streams {
 public:
  Streams(World& world, const Load& load) : load_(load) {
    QpSettings qp;
    qp.max_rd_atomic = 16;
    qp.type = load.type;
    for (uint32_t i = 0; i < load.qps; ++i) {
      ends_.push_back(world.make_endpoint(load.near, qp));
      ends_.push_back(world.make_endpoint(load.far, qp));
      Endpoint& near = *ends_[2 * i];
      Endpoint& far = *ends_[2 * i + 1];
      world.connect(near, far);
      streams_.push_back(
          std::make_unique<Stream>(near, far,
                                   StreamSettings{.op = load.op,
                                                  .message_bytes = load.message_bytes,
                                                  .depth = load.depth,
                                                  .messages = 1 << 20}));
      world.add(*streams_.back());
    }
  }
  uint64_t bytes() const {
    uint64_t messages = 0;
    for (const auto& stream : streams_) {
      EXPECT_FALSE(stream->failed());
      messages += stream->timings().size();
    }
    return messages * load_.message_bytes;
  }

 private:
  const Load load_;
  std::vector<std::unique_ptr<Endpoint>> ends_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

// How the sending NIC is kept from sending all that there is.
struct Bottleneck {
  const char* name;
  double gigabits;
  bool segmentation;
  uint32_t queue_packets;
  Transport transport = Transport::kHostnic;
};
void PrintTo(const Bottleneck& bottleneck, std::ostream* out) { *out << bottleneck.name; }
// Where the link is not named the port has room for all that a turn sends: turns are scarce.
constexpr Bottleneck kBottlenecks[] = {
    {"link of 100 Gb/s", 100, false, 32},
    {"link of 70 Gb/s", 70, false, 32},
    {"link of 100 Gb/s with bundles", 100, true, 4},
    {"link of 200 Gb/s with bundles", 200, true, 4},
    {"turns", 1e6, false, 4096},
    {"turns with bundles", 1e6, true, 4096},
    {"RoCE over a link of 100 Gb/s", 100, false, 32, Transport::kRoce},
    {"RoCE over a link of 70 Gb/s", 70, false, 32, Transport::kRoce},
    {"RoCE and turns", 1e6, false, 4096, Transport::kRoce},
};

class Fairness : public testing::TestWithParam<Bottleneck> {
 protected:
  static WorldSettings settings() {
    WorldSettings settings;
    settings.more_clients_of = {0, 1};
    settings.transport = GetParam().transport;
    settings.segmentation = GetParam().segmentation;
    settings.link.gigabits = GetParam().gigabits;
    settings.link.queue_packets = GetParam().queue_packets;
    settings.link.queue_is_receivers = false;
    settings.trace = false;
    return settings;
  }

  // How much more the better served of both got than the other, from their first bytes on.
  double advantage(const Load& one, const Load& other) {
    World world(settings());
    Streams first(world, one), second(world, other);
    // Many times what waits: completions come in waves, as each queue pair has its turn.
    const auto wanted_ns = static_cast<uint64_t>(64e6 * 8 / GetParam().gigabits);
    const uint64_t interval_ns = std::max(wanted_ns, 2 * kMillisecond);
    world.run_for(interval_ns / 4);
    const uint64_t first_before = first.bytes(), second_before = second.bytes();
    world.run_for(interval_ns);
    EXPECT_FALSE(world.failed()) << world.report();
    const auto first_got = static_cast<double>(first.bytes() - first_before);
    const auto second_got = static_cast<double>(second.bytes() - second_before);
    EXPECT_GT(first_got, 100e3);
    EXPECT_GT(second_got, 100e3);
    RecordProperty("bytes", std::to_string(first_got) + " and " + std::to_string(second_got));
    return std::max(first_got, second_got) / std::min(first_got, second_got);
  }
};

constexpr uint32_t kHere = 0, kThere = 1, kAlsoHere = 2, kAlsoThere = 3;

TEST_P(Fairness, OneQueuePairAndManyWithLongWrites) {
  EXPECT_LT(advantage({kHere, kThere, 1, 64 << 10, SendOp::kWrite, 48},
                      {kAlsoHere, kAlsoThere, 64, 64 << 10, SendOp::kWrite, 1}),
            1.2);
}

TEST_P(Fairness, ShortAndLongWrites) {
  EXPECT_LT(advantage({kHere, kThere, 16, 4096, SendOp::kWrite, 32},
                      {kAlsoHere, kAlsoThere, 16, 256 << 10, SendOp::kWrite, 4}),
            1.2);
}

TEST_P(Fairness, OneQueuePairAndManyThatAreRead) {
  EXPECT_LT(advantage({kHere, kThere, 1, 256 << 10, SendOp::kRead, 16},
                      {kAlsoHere, kAlsoThere, 64, 16 << 10, SendOp::kRead, 1}),
            1.2);
}

// Answers to READs and what a program sends itself come out of one share.
TEST_P(Fairness, OneThatIsReadAndOneThatWrites) {
  EXPECT_LT(advantage({kHere, kThere, 16, 256 << 10, SendOp::kRead, 4},
                      {kAlsoThere, kAlsoHere, 16, 256 << 10, SendOp::kWrite, 4}),
            1.2);
}

TEST_P(Fairness, OneQueuePairAndManyThatAreUnreliable) {
  EXPECT_LT(advantage({kHere, kThere, 1, 64 << 10, SendOp::kWrite, 48, QpType::kUc},
                      {kAlsoHere, kAlsoThere, 64, 64 << 10, SendOp::kWrite, 1, QpType::kUc}),
            1.2);
}

TEST_P(Fairness, OneThatIsUnreliableAndOneThatIsRead) {
  EXPECT_LT(advantage({kHere, kThere, 16, 64 << 10, SendOp::kWrite, 4, QpType::kUc},
                      {kAlsoThere, kAlsoHere, 16, 256 << 10, SendOp::kRead, 4}),
            1.2);
}

// `show client` says what has left for each program, whatever its queue pairs speak.
TEST_P(Fairness, AnswersAreCountedAsTheirClients) {
  World world(settings());
  const Streams one(world, {kThere, kHere, 2, 64 << 10, SendOp::kRead, 2});
  const Streams other(world, {kAlsoThere, kAlsoHere, 1, 4096, SendOp::kRead, 1});
  world.run_for(2 * kMillisecond);
  const auto sent_bytes = [&world](uint32_t host) {
    return world.host(host).channel().use->sent_bytes.load();
  };
  for (const auto& [streams, host] : {std::pair{&one, kHere}, std::pair{&other, kAlsoHere}}) {
    EXPECT_GT(streams->bytes(), 0u);
    EXPECT_GE(sent_bytes(host), streams->bytes());
    // Headers count, and what is on its way.
    EXPECT_LE(sent_bytes(host), streams->bytes() * 11 / 10 + (512 << 10));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Fairness, testing::ValuesIn(kBottlenecks),
                         [](const testing::TestParamInfo<Bottleneck>& info) {
                           std::string name;
                           for (const char c : std::string(info.param.name))
                             if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
                           return name;
                         });

// A program without a queue pair that fills both of its rings with work for one.
class Garbage final : public World::Program {
 public:
  explicit Garbage(Nic& nic) : nic_(nic) {
    auto made = ClientChannel::create(
        {.client_id = 1000, .max_qps = 2, .arena_bytes = 1 << 16, .program = "garbage", .pid = 0});
    EXPECT_TRUE(made);
    channel_ = std::move(*made);
    EXPECT_EQ(map_.use(channel_->memory()), 0);
    EXPECT_EQ(nic_.attach(channel_.get()), 0);
  }
  ~Garbage() override { nic_.detach(channel_.get()); }
  bool turn(TimeNs) override {
    SendDescriptor refused{};
    refused.op = SendOp::kWrite;
    refused.qpn = 0x123456;
    refused.length_bytes = 4096;
    refused.sge_count = 1;
    bool any = false;
    while (map_.sends.enqueue_bulk(&refused, 1)) any = true;
    while (map_.urgent.enqueue_bulk(&refused, 1)) any = true;
    return any;
  }
  TimeNs next_ns() const override { return UINT64_MAX; }

 private:
  Nic& nic_;
  std::unique_ptr<ClientChannel> channel_;
  driver::SegmentMap map_;
};

// Descriptors that are refused count as much of a turn as packets that leave.
TEST(FairnessOfTurns, RefusedDescriptorsHaveAShareToo) {
  WorldSettings settings;
  settings.link.gigabits = 1e6;
  settings.trace = false;
  World world(settings);
  Streams honest(world, {kHere, kThere, 32, 2048, SendOp::kWrite, 32});
  Garbage garbage(world.host(0).nic());
  world.add(garbage);
  world.run_for(kMillisecond);
  const uint64_t bytes_before = honest.bytes();
  const uint64_t refused_before = world.host(0).counter(Counter::descriptors_discarded);
  world.run_for(kMillisecond);
  const auto sent = static_cast<double>(honest.bytes() - bytes_before) / 2048;
  const auto refused =
      static_cast<double>(world.host(0).counter(Counter::descriptors_discarded) - refused_before);
  EXPECT_GT(sent, 1000);
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, 1.2 * sent);
}

}  // namespace
}  // namespace hostnic::sim
