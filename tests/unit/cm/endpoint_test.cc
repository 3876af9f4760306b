// SPDX-License-Identifier: BSD-3-Clause
// Two ends of communication management on virtual time, with a network between them that loses,
// repeats and reorders, and sides that die in each state.
#include "protocol/cm/endpoint.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <random>

namespace hostnic::cm {
namespace {

constexpr TimeNs kMillisecond = 1'000'000, kSecond = 1'000'000'000;
constexpr Ipv4Address kAddress[2] = {Ipv4Address{0x0a4d0001}, Ipv4Address{0x0a4d0002}};
// The ends as each side sees them.
constexpr Ends kEnds[2] = {{kAddress[0], kAddress[1]}, {kAddress[1], kAddress[0]}};

struct Network {
  double loss = 0, duplication = 0;
  TimeNs delay = 10'000, jitter = 0;
};

// Both ends, and what their hosts were told.
class Pair {
 public:
  explicit Pair(Network network = {}, uint32_t seed = 1) : network_(network), random_(seed) {
    for (int side : {0, 1}) restart(side);
  }

  Endpoint& at(int side) { return *ends_[side]; }
  void restart(int side) {
    ends_[side] = std::make_unique<Endpoint>(static_cast<uint32_t>(random_()), 0xabc0 + side, 4096);
    events[side].clear();
  }
  TimeNs now() const { return now_; }
  Network& network() { return network_; }

  // Until `until`, or nothing is left to happen.
  void run_for(TimeNs duration) {
    const TimeNs until = now_ + duration;
    for (;;) {
      collect();
      TimeNs next = std::min(at(0).next_deadline_ns(), at(1).next_deadline_ns());
      if (!flying_.empty()) next = std::min(next, flying_.begin()->first);
      if (next > until) break;
      now_ = std::max(now_, next);
      while (!flying_.empty() && flying_.begin()->first <= now_) {
        const auto [to, bytes] = flying_.begin()->second;
        flying_.erase(flying_.begin());
        const auto mad = parse(bytes);
        ASSERT_TRUE(mad);
        at(to).receive(kEnds[to], *mad, now_);
        collect();
      }
      for (int side : {0, 1}) at(side).advance(now_);
    }
    now_ = until;
  }

  // All events of a kind that a side has seen.
  std::vector<Event> seen(int side, Event::Kind kind, ConnectionId id = 0) const {
    std::vector<Event> found;
    for (const Event& event : events[side])
      if (event.kind == kind && (id == 0 || event.connection == id)) found.push_back(event);
    return found;
  }

  // A program that answers each event as most do. Null: none.
  std::function<void(int side, const Event&)> program;
  std::vector<Event> events[2];
  size_t sent = 0;

 private:
  void collect() {
    for (bool more = true; more;) {
      more = false;
      for (int side : {0, 1}) {
        for (const Outgoing& out : at(side).take_outgoing()) {
          ++sent;
          const int copies = chance(network_.duplication) ? 2 : 1;
          for (int i = 0; i < copies; ++i) {
            if (chance(network_.loss)) continue;
            const TimeNs extra = network_.jitter == 0 ? 0 : random_() % network_.jitter;
            flying_.insert({now_ + network_.delay + extra,
                            {out.ends.peer == kAddress[0] ? 0 : 1, build(out.mad)}});
          }
        }
        for (const Event& event : at(side).take_events()) {
          events[side].push_back(event);
          if (program) program(side, event);
          more = true;
        }
      }
    }
  }
  bool chance(double p) { return std::uniform_real_distribution<>()(random_) < p; }

  Network network_;
  std::mt19937 random_;
  std::unique_ptr<Endpoint> ends_[2];
  std::multimap<TimeNs, std::pair<int, MadBytes>> flying_;
  TimeNs now_ = 0;
};

Req req(uint32_t qpn = 0x11) {
  Req message;
  message.service_id = service_id(0x106, 7174);
  message.qpn = qpn;
  return message;
}

// Accepts whatever comes, and confirms.
void accept_all(Pair& pair) {
  pair.program = [&pair](int side, const Event& event) {
    Endpoint& end = pair.at(side);
    if (event.kind == Event::kRequest) end.accept(event.connection, Rep{.qpn = 0x22}, pair.now());
    if (event.kind == Event::kReply) end.ready(event.connection, Rtu{});
    if (event.kind == Event::kDisconnected) end.disconnect(event.connection, pair.now());
    if (event.kind == Event::kSidrRequest)
      end.answer(event.connection, SidrRep{.qpn = 0x33, .qkey = 5}, pair.now());
  };
}

TEST(CmEndpoint, ConnectsAndDisconnectsInFiveMessages) {
  Pair pair;
  accept_all(pair);
  const ConnectionId id = pair.at(0).connect(kEnds[0], req(), pair.now());
  pair.run_for(kSecond);
  ASSERT_EQ(pair.seen(1, Event::kRequest).size(), 1u);
  EXPECT_EQ(std::get<Req>(pair.seen(1, Event::kRequest)[0].message).qpn, 0x11u);
  ASSERT_EQ(pair.seen(0, Event::kReply, id).size(), 1u);
  EXPECT_EQ(std::get<Rep>(pair.seen(0, Event::kReply)[0].message).qpn, 0x22u);
  EXPECT_EQ(pair.seen(1, Event::kEstablished).size(), 1u);
  EXPECT_EQ(pair.at(0).state_of(id), State::kEstablished);
  EXPECT_EQ(pair.sent, 3u);
  EXPECT_TRUE(pair.at(0).disconnect(id, pair.now()));
  pair.run_for(kSecond);
  EXPECT_EQ(pair.seen(0, Event::kDisconnected).size(), 1u);
  EXPECT_EQ(pair.seen(1, Event::kDisconnected).size(), 1u);
  EXPECT_EQ(pair.sent, 5u);
  EXPECT_FALSE(pair.at(0).disconnect(id, pair.now())) << "a second time";
  pair.run_for(2 * Endpoint::kTimeWaitNs);
  EXPECT_EQ(pair.seen(0, Event::kTimeWaitExit).size(), 1u);
  EXPECT_EQ(pair.seen(1, Event::kTimeWaitExit).size(), 1u);
  for (int side : {0, 1}) {
    for (const Event& event : pair.events[side])
      pair.at(side).destroy(event.connection, pair.now());
    EXPECT_EQ(pair.at(side).connections(), 0u);
  }
}

TEST(CmEndpoint, RejectionsCarryReasonAndData) {
  Pair pair;
  pair.program = [&](int side, const Event& event) {
    if (event.kind != Event::kRequest) return;
    Rej rej{.reason = 28};
    rej.private_data[0] = std::byte{42};
    EXPECT_TRUE(pair.at(side).reject(event.connection, rej, pair.now()));
    pair.at(side).destroy(event.connection, pair.now());
  };
  pair.at(0).connect(kEnds[0], req(), pair.now());
  pair.run_for(kSecond);
  ASSERT_EQ(pair.seen(0, Event::kRejected).size(), 1u);
  const Rej rej = std::get<Rej>(pair.seen(0, Event::kRejected)[0].message);
  EXPECT_EQ(rej.reason, 28);
  EXPECT_EQ(rej.private_data[0], std::byte{42});
  EXPECT_EQ(rej.concerned, Concerned::kReq);
}

TEST(CmEndpoint, SlowProgramsAreWaitedFor) {
  Pair pair;
  pair.at(0).connect(kEnds[0], req(), pair.now());
  pair.run_for(60 * kSecond);
  ASSERT_EQ(pair.seen(1, Event::kRequest).size(), 1u) << "asked once";
  EXPECT_TRUE(pair.seen(0, Event::kUnreachable).empty());
  EXPECT_TRUE(
      pair.at(1).accept(pair.seen(1, Event::kRequest)[0].connection, Rep{.qpn = 1}, pair.now()));
  pair.run_for(60 * kSecond);
  const auto reply = pair.seen(0, Event::kReply);
  ASSERT_EQ(reply.size(), 1u);
  EXPECT_TRUE(pair.seen(1, Event::kUnreachable).empty()) << "the MRA bought time";
  EXPECT_TRUE(pair.at(0).ready(reply[0].connection, Rtu{}));
  pair.run_for(10 * kSecond);
  EXPECT_EQ(pair.seen(1, Event::kEstablished).size(), 1u);
}

TEST(CmEndpoint, NobodyAnswers) {
  Pair pair({.loss = 1});
  const ConnectionId id = pair.at(0).connect(kEnds[0], req(), pair.now());
  const ConnectionId datagram = pair.at(0).resolve(kEnds[0], SidrReq{}, pair.now());
  pair.run_for(Endpoint::kGiveUpNs - kSecond);
  EXPECT_TRUE(pair.events[0].empty()) << "not before the time that a peer has";
  pair.run_for(2 * kSecond);
  EXPECT_EQ(pair.seen(0, Event::kUnreachable, id).size(), 1u);
  EXPECT_EQ(pair.seen(0, Event::kUnreachable, datagram).size(), 1u);
  EXPECT_LT(pair.sent, 2 * 30u);
  pair.at(0).destroy(id, pair.now());
  pair.at(0).destroy(datagram, pair.now());
  pair.run_for(2 * Endpoint::kTimeWaitNs);
  EXPECT_EQ(pair.at(0).connections(), 0u);
}

TEST(CmEndpoint, DatagramRequests) {
  Pair pair({.loss = 0.4, .duplication = 0.3}, 7);
  accept_all(pair);
  for (int i = 0; i < 50; ++i) pair.at(0).resolve(kEnds[0], SidrReq{}, pair.now());
  pair.run_for(Endpoint::kGiveUpNs);
  EXPECT_EQ(pair.seen(1, Event::kSidrRequest).size(), 50u);
  ASSERT_EQ(pair.seen(0, Event::kSidrReply).size(), 50u);
  EXPECT_EQ(std::get<SidrRep>(pair.seen(0, Event::kSidrReply)[0].message).qkey, 5u);
}

TEST(CmEndpoint, BothDisconnectAtOnce) {
  Pair pair;
  accept_all(pair);
  const ConnectionId id = pair.at(0).connect(kEnds[0], req(), pair.now());
  pair.run_for(kSecond);
  pair.program = nullptr;
  pair.at(0).disconnect(id, pair.now());
  pair.at(1).disconnect(pair.seen(1, Event::kEstablished)[0].connection, pair.now());
  pair.run_for(kSecond);
  for (int side : {0, 1}) EXPECT_EQ(pair.seen(side, Event::kDisconnected).size(), 1u);
}

// The RTU is lost and the DREQ arrives: a program that waits for the connection before it waits for
// the end gets both.
TEST(CmEndpoint, AConnectionOfWhichOnlyTheEndArrivesWasEstablished) {
  Pair pair;
  accept_all(pair);
  const ConnectionId id = pair.at(0).connect(kEnds[0], req(), pair.now());
  pair.program = [&pair, accepts = pair.program](int side, const Event& event) {
    // The RTU, which leaves in this call.
    if (event.kind == Event::kReply) pair.network().loss = 1;
    accepts(side, event);
  };
  pair.run_for(kMillisecond);
  ASSERT_TRUE(pair.seen(1, Event::kEstablished).empty());
  pair.network().loss = 0;
  pair.program = nullptr;
  ASSERT_TRUE(pair.at(0).disconnect(id, pair.now()));
  pair.run_for(kMillisecond);
  ASSERT_EQ(pair.events[1].size(), 3u);
  EXPECT_EQ(pair.events[1][1].kind, Event::kEstablished);
  EXPECT_EQ(pair.events[1][2].kind, Event::kDisconnected);
  ASSERT_TRUE(pair.at(1).disconnect(pair.events[1][2].connection, pair.now()));
  pair.run_for(60 * kSecond);
  EXPECT_EQ(pair.seen(1, Event::kTimeWaitExit).size(), 1u);
  EXPECT_EQ(pair.seen(0, Event::kDisconnected).size(), 1u);
}

TEST(CmEndpoint, EveryConnectionComesAboutOnceWhateverTheNetworkDoes) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    Pair pair({.loss = 0.02 * (seed % 16),
               .duplication = 0.05 * (seed % 5),
               .delay = 20'000,
               .jitter = (seed % 3) * 200 * kMillisecond},
              seed);
    accept_all(pair);
    std::vector<ConnectionId> ids;
    for (uint32_t i = 0; i < 30; ++i) {
      ids.push_back(pair.at(0).connect(kEnds[0], req(0x100 + i), pair.now()));
      pair.run_for(3 * kMillisecond);
    }
    pair.run_for(40 * kSecond);
    EXPECT_EQ(pair.seen(1, Event::kRequest).size(), 30u) << seed;
    EXPECT_EQ(pair.seen(0, Event::kReply).size(), 30u) << seed;
    EXPECT_EQ(pair.seen(1, Event::kEstablished).size(), 30u) << seed;
    for (const ConnectionId id : ids) EXPECT_TRUE(pair.at(0).disconnect(id, pair.now()));
    pair.run_for(60 * kSecond);
    for (int side : {0, 1}) {
      EXPECT_EQ(pair.seen(side, Event::kDisconnected).size(), 30u) << seed;
      EXPECT_TRUE(pair.seen(side, Event::kUnreachable).empty() &&
                  pair.seen(side, Event::kRejected).empty())
          << seed;
      for (const Event& event : pair.events[side])
        pair.at(side).destroy(event.connection, pair.now());
    }
    pair.run_for(60 * kSecond);
    for (int side : {0, 1}) EXPECT_EQ(pair.at(side).connections(), 0u) << seed;
  }
}

// One side forgets everything, at each moment of a connection's life.
TEST(CmEndpoint, APeerThatVanishesIsNoticed) {
  for (int victim : {0, 1}) {
    for (TimeNs moment = 0; moment <= 60'000; moment += 5'000) {
      SCOPED_TRACE(testing::Message() << "side " << victim << " after " << moment << " ns");
      Pair pair;
      accept_all(pair);
      const int survivor = 1 - victim;
      const ConnectionId id = pair.at(0).connect(kEnds[0], req(), pair.now());
      pair.run_for(moment);
      pair.restart(victim);
      pair.network().loss = 1;  // its host is gone, too
      pair.run_for(2 * Endpoint::kGiveUpNs);
      const auto& events = pair.events[survivor];
      if (survivor == 1 && events.empty()) continue;  // it never heard of the other
      const ConnectionId own = survivor == 0 ? id : events[0].connection;
      if (pair.at(survivor).state_of(own) == State::kEstablished) {
        // Silence is no news between requests: only who says goodbye notices.
        EXPECT_TRUE(pair.at(survivor).disconnect(own, pair.now()));
        pair.run_for(Endpoint::kDisconnectGiveUpNs + kSecond);
        EXPECT_EQ(pair.seen(survivor, Event::kDisconnected).size(), 1u);
      } else {
        EXPECT_EQ(pair.seen(survivor, Event::kUnreachable).size(), 1u);
      }
      pair.at(survivor).destroy(own, pair.now());
      pair.run_for(2 * Endpoint::kGiveUpNs);
      EXPECT_EQ(pair.at(survivor).connections(), 0u);
    }
  }
}

// One side's program is killed, and its host tells the peer.
TEST(CmEndpoint, AProgramThatDiesLeavesNothing) {
  for (const double loss : {0.0, 0.3}) {
    for (int victim : {0, 1}) {
      for (TimeNs moment = 0; moment <= 60'000; moment += 5'000) {
        SCOPED_TRACE(testing::Message() << "side " << victim << " after " << moment << " ns");
        Pair pair({.loss = loss}, static_cast<uint32_t>(moment + 3));
        accept_all(pair);
        const ConnectionId id = pair.at(0).connect(kEnds[0], req(), pair.now());
        pair.run_for(moment);
        const int survivor = 1 - victim;
        pair.program = [&](int side, const Event& event) {
          if (side == victim) pair.at(side).destroy(event.connection, pair.now());
          if (side == survivor) {
            if (event.kind == Event::kRequest)
              pair.at(side).accept(event.connection, Rep{.qpn = 2}, pair.now());
            if (event.kind == Event::kReply) pair.at(side).ready(event.connection, Rtu{});
            if (event.kind == Event::kDisconnected)
              pair.at(side).disconnect(event.connection, pair.now());
          }
        };
        if (victim == 0) pair.at(0).destroy(id, pair.now());
        for (const Event& event : pair.events[victim])
          pair.at(victim).destroy(event.connection, pair.now());
        pair.run_for(2 * Endpoint::kGiveUpNs);
        size_t ends = 0;
        for (auto kind : {Event::kRejected, Event::kDisconnected, Event::kUnreachable})
          ends += pair.seen(survivor, kind).size();
        if (!pair.events[survivor].empty()) {
          EXPECT_EQ(ends, 1u);
        }
        if (survivor == 0) pair.at(0).destroy(id, pair.now());
        for (const Event& event : pair.events[survivor])
          pair.at(survivor).destroy(event.connection, pair.now());
        pair.run_for(2 * Endpoint::kGiveUpNs);
        for (int side : {0, 1}) EXPECT_EQ(pair.at(side).connections(), 0u);
      }
    }
  }
}

TEST(CmEndpoint, StrangersMeanNothing) {
  Pair pair;
  accept_all(pair);
  const ConnectionId id = pair.at(0).connect(kEnds[0], req(), pair.now());
  pair.run_for(kSecond);
  const ConnectionId other = pair.seen(1, Event::kEstablished)[0].connection;
  const Ends stranger{kAddress[0], Ipv4Address{0x0a4d0009}};
  pair.at(0).receive(stranger, {1, Dreq{.local_id = other, .remote_id = id}}, pair.now());
  pair.at(0).receive(stranger, {1, Rej{.local_id = other, .remote_id = id}}, pair.now());
  pair.at(0).receive(kEnds[0], {1, Dreq{.local_id = other + 1, .remote_id = id}}, pair.now());
  EXPECT_EQ(pair.at(0).state_of(id), State::kEstablished);
}

TEST(CmEndpoint, ThereIsABound) {
  Endpoint end(1, 2, 10);
  for (uint32_t i = 0; i < 20; ++i)
    end.receive(kEnds[0], {i, Req{.local_id = 100 + i, .qpn = i}}, 0);
  EXPECT_EQ(end.connections(), 10u);
  EXPECT_EQ(end.connect(kEnds[0], req(), 0), 0u);
}

}  // namespace
}  // namespace hostnic::cm
