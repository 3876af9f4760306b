// SPDX-License-Identifier: BSD-3-Clause
// One cell of the recovery study: a network, a policy, a load, and what came of it. Both real
// halves of hostnic on virtual time (tests/sim), so a cell gives the same numbers everywhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "protocol/hostif/descriptors.h"
#include "protocol/wire/bth.h"

namespace hostnic::recovery {

inline constexpr uint32_t kMtuBytes = 4096;
inline constexpr double kLinkGigabits = 100;
inline constexpr uint64_t kRttNs = 10'000;  // of the empty path
// As many packets as the virtual wire's rings hold.
inline constexpr uint32_t kLinkQueuePackets = 512;
// Of the switch port before the receiver of an incast.
inline constexpr uint32_t kSwitchQueuePackets = 1024;

enum class Topology : uint8_t {
  kPair,    // all QPs between two hosts
  kIncast,  // all QPs to one host, whose switch port has the rate of one link and drops
};

struct Cell {
  std::string study;
  SendOp op = SendOp::kWrite;  // or kRead, whose data go the other way
  wire::Policy policy = wire::Policy::kSelective;
  bool roce = false;  // the standard's RC, which holds what is ahead unless the policy is go-back-N
  Topology topology = Topology::kPair;
  uint32_t qps = 1;
  uint32_t window = 1024;  // PSNs
  uint32_t message_bytes = 65536;
  uint32_t depth = 1;     // messages outstanding per QP
  uint32_t loss_ppm = 0;  // of each packet, data and ACKs
  uint32_t reorder_ppm = 0;
  uint32_t reorder_distance = 0;
  uint32_t messages = 100;  // per QP
};

enum class Outcome : uint8_t {
  kDone,
  kBudget,  // stopped after so many packets; what had completed by then counts
  kFailed,  // a request ended with an error: retries exceeded
};

struct Result {
  uint64_t completed = 0;  // messages
  Outcome outcome = Outcome::kDone;
  uint64_t p50_ns = 0, p99_ns = 0;
  // Goodput: until nine tenths of the messages had completed. The last ones may wait for timers
  // while nobody else sends any more, which a number of messages without end would not.
  uint64_t payload_bytes = 0, duration_ns = 0;
  uint64_t sent_packets = 0;       // data
  uint64_t resent_packets = 0;     // of them: not for the first time (READs: more than was needed)
  uint64_t lost_packets = 0;       // data, in the network
  uint64_t duplicate_packets = 0;  // data that the receiver had
  uint64_t acks = 0;               // READs: requests and pulls
  uint64_t timeouts = 0, probes = 0;
  // Sent again although they were not lost.
  uint64_t spurious_packets() const {
    return resent_packets > lost_packets ? resent_packets - lost_packets : 0;
  }
};

// EAL must be up (TestEal).
Result run(const Cell& cell);

// The cells of the whole study, and the few of it that the golden snapshot consists of.
std::vector<Cell> study_cells();
std::vector<Cell> golden_cells();

const char* policy_name(const Cell& cell);
std::string csv_header();
std::string csv_line(const Cell& cell, const Result& result);

}  // namespace hostnic::recovery
