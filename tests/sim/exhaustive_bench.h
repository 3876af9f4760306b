// SPDX-License-Identifier: BSD-3-Clause
// Two connections between two hosts for the exhaustive tests: a pattern says what happens to the
// first packets of either, and everything is compared with what must be there afterwards.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "dataplane/simulation/world.h"

namespace hostnic::sim {

inline constexpr uint32_t kPatternPackets = 6;  // of each connection that a pattern decides about
inline constexpr uint32_t kExhaustiveMtu = 256;

// What one connection is asked to do.
struct Work {
  SendOp op;
  uint32_t bytes;
};
using Works = std::vector<Work>;

// The fates of a connection's first packets in one direction. Packets behind them pass.
using Fates = std::array<Fate, kPatternPackets>;

struct Pattern {
  bool backward = false;  // of what the responder sends: ACKs, READ answers
  std::array<Fates, 2> fates{};
};

class ExhaustiveBench {
 public:
  explicit ExhaustiveBench(bool with_icrc = false);
  // Both connections do the same work, each on its own memory. False: the world says what failed.
  bool run(const Works& works, const Pattern& pattern);
  World& world() { return world_; }
  // How many packets the connections sent in the pattern's direction in the last run.
  std::array<uint32_t, 2> seen() const { return seen_; }
  uint64_t longest_ns() const { return longest_ns_; }

 private:
  static constexpr uint32_t kBytes = 8192, kReceiveBytes = 2048, kMargin = 64;
  static constexpr uint32_t kCounterOffset = kBytes - 64;  // in target
  struct Connection {
    explicit Connection(World& world);
    std::unique_ptr<Endpoint> near, far;
    Memory source, landing, target, receives;
    uint32_t source_key, landing_key, target_key, receives_key;
    // What must be there at the end.
    std::vector<uint8_t> landing_after, target_after, receives_after;
    struct Expected {
      uint64_t wr_id;
      uint32_t bytes;
    };
    std::vector<Expected> received;
    uint32_t sent = 0, atomics = 0;
    uint32_t done = 0, receives_done = 0;
  };

  void reset(Connection& c);
  void fill(Connection& c);
  void post(Connection& c, const Works& works);
  void expect(Connection& c, const Work& work, uint32_t offset, driver::SendRequest& request);
  bool take(Connection& c);
  void compare(Connection& c);

  World world_;
  std::array<std::unique_ptr<Connection>, 2> connections_;
  uint64_t runs_ = 0;
  std::array<uint32_t, 2> seen_{};
  uint64_t longest_ns_ = 0;
};

}  // namespace hostnic::sim
