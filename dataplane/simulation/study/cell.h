// SPDX-License-Identifier: BSD-3-Clause
// One cell of a study: a network, a policy, a load, and what came of it. Both real halves of
// hostnic on virtual time, so a cell gives the same numbers everywhere.
#pragma once

#include <cstdint>
#include <string>

#include "protocol/hostif/descriptors.h"
#include "protocol/impair/spec.h"
#include "protocol/wire/bth.h"

namespace hostnic::study {

// As many packets as the virtual wire's rings hold; of longer paths twice what is under way.
inline constexpr uint32_t kLinkQueuePackets = 512;
// Of the switch port before the receiver of an incast.
inline constexpr uint32_t kSwitchQueuePackets = 1024;

enum class Topology : uint8_t {
  kPair,    // all QPs between two hosts
  kIncast,  // all QPs to one host, whose switch port has the rate of one link and drops
};

struct Cell {
  std::string study;           // the part of the recovery study that it is of; empty: none
  SendOp op = SendOp::kWrite;  // or kRead, whose data go the other way
  wire::Policy policy = wire::Policy::kSelective;
  bool roce = false;  // the standard's RC, which holds what is ahead unless the policy is go-back-N
  Topology topology = Topology::kPair;
  uint32_t mtu_bytes = 4096;
  uint64_t rate_bits_per_second = 100'000'000'000;
  uint64_t delay_ns = 5'000;  // of the empty path, one way
  uint32_t qps = 1;
  uint32_t window = 1024;  // PSNs
  uint32_t message_bytes = 65536;
  uint32_t depth = 1;     // messages outstanding per QP
  uint32_t loss_ppm = 0;  // of each packet, data and ACKs
  uint32_t reorder_ppm = 0;
  uint32_t reorder_distance = 0;
  impair::Spec impair_rx, impair_tx;  // of every host, behind the above
  uint32_t messages = 100;            // per QP
  // Changing it changes every number of the recovery study.
  uint64_t seed = 7;

  uint32_t packets_of_a_message() const {
    return message_bytes <= mtu_bytes ? 1 : (message_bytes + mtu_bytes - 1) / mtu_bytes;
  }
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

// EAL must be up (SmallEal). Throws std::exception where the simulation itself fails.
Result run(const Cell& cell);

const char* name_of(Outcome outcome);

}  // namespace hostnic::study
