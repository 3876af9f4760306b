// SPDX-License-Identifier: BSD-3-Clause
// What the NIC keeps of a connection by the standard's RC (transport/roce), beside what all queue
// pairs have. It is made with the connection, so that other queue pairs need no room for it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "dataplane/nic/qp/message_state.h"
#include "protocol/fixed_ring.h"
#include "protocol/hostif/segment.h"
#include "protocol/psn.h"
#include "protocol/transport/dcqcn.h"
#include "protocol/wire/aeth.h"

namespace hostnic {

// A READ or atomic that has been asked for, in however many requests, and is not answered to its
// end. Its answers have its PSNs (InfiniBand 9.7.5.1.1); those before QpContext::una have come.
struct RoceRequest {
  Psn first;
  uint32_t answers = 0;  // how many there are
  uint32_t read_number = 0;
  uint32_t length_bytes = 0;
  bool is_atomic = false;

  Psn end() const { return first + answers; }
};

// What a responder owes for a READ or atomic request.
struct RoceAnswer {
  Psn first;
  uint32_t packets = 0, sent = 0;
  bool is_atomic = false;
  uint32_t key = 0;  // of a READ, as are the next two
  uint64_t va = 0;
  uint32_t length_bytes = 0;
  uint64_t before = 0;  // an atomic: what memory contained
  uint32_t msn = 0;
  bool again = false;  // the request is a repetition
};

// How many answers, and so PSNs, a READ of that length has. Path MTUs are powers of two.
constexpr uint32_t answers_of_read(uint32_t length_bytes, uint16_t mtu_bytes) {
  const uint64_t rounded = uint64_t{length_bytes} + mtu_bytes - 1;
  return std::max(1u, static_cast<uint32_t>(rounded >> std::countr_zero(mtu_bytes)));
}

struct RoceConnection {
  // The members from here on are the requester's.
  // A requester has kReadDestinationEntries outstanding at most.
  FixedRing<RoceRequest, kReadDestinationEntries> requests;
  bool gap_told = false;  // the driver knows that an answer is missing
  // Congestion notifications that came, and of what they did to the driver's rate what has been
  // counted.
  uint32_t notifications = 0, counted_cuts = 0, counted_recoveries = 0;

  // The members from here on are the responder's. Which PSN it expects, and what it holds beyond
  // that, is in QpContext::requests.
  MessageState message;
  bool in_message = false;    // the rest of `message` is to come
  bool gap_answered = false;  // a NAK for the missing PSN has been sent, or an RNR NAK
  bool not_ready = false;     // it was an RNR NAK: what is behind comes again, and is not held
  FixedRing<RoceAnswer, 64> answers;
  bool waits_for_rate = false;  // answers are owed, and not in line: the rate says when
  // The NAK that leaves behind the answers; of another kind than kAck, about the expected PSN
  // unless it is fatal.
  wire::AckKind nak = wire::AckKind::kAck;
  uint64_t next_cnp_ns = 0;
  // How fast answers of READs leave, once the network has told of congestion; and whether some left
  // since it last did.
  DcqcnLimiter answer_limiter;
  uint32_t answer_recoveries = 0;  // of the limiter's, those that have been counted
  bool answered = false;
};

}  // namespace hostnic
