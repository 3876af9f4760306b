// SPDX-License-Identifier: BSD-3-Clause
// What became of a request, and why one is refused: the same for all transports, which decide
// what they say to the peer about it. Values; no thread of their own.
#pragma once

#include <cstdint>
#include <optional>

#include "protocol/hostif/segment.h"
#include "protocol/wire/aeth.h"

namespace hostnic {

// Why a request is refused.
enum class Refusal : uint8_t {
  kInvalidRequest,  // the queue pair does not take such a request, or not now
  kTooManyReads,    // more READs and atomics are outstanding than were agreed upon
  kMisaligned,      // the address of an atomic is no multiple of 8
  kMessageTooLong,  // beyond what a message may have, or other than its first packet said
  kAccess,          // key, bounds or rights, or the memory is gone
  kReceiveAccess,   // the same, of a request that ends a receive: it says so, too
  kReceiveTooLong,  // the message is longer than its receive
  kReceiveMemory,   // the receive names memory that is no good: the fault of this end
};

// What a refusal means: InfiniBand's NAK to the peer, the event for this end's program, and what a
// receive ends with, which the request has taken.
struct RefusalMeaning {
  wire::NakCode code = wire::NakCode::kInvalidRequest;
  uint32_t event = 0;  // QpEvent
  std::optional<RecvStatus> recv_status;
};
const RefusalMeaning& meaning_of(Refusal refusal);

struct Outcome {
  enum Kind : uint8_t {
    kDone,       // placed, or executed
    kNotNow,     // a resource is missing for now: the packet is held, or as good as lost
    kNoReceive,  // no receive is posted
    kRefused,
  };
  Kind kind = kDone;
  Refusal refusal = Refusal::kInvalidRequest;  // if kRefused

  bool done() const { return kind == kDone; }
};

constexpr Outcome refused(Refusal refusal) { return {Outcome::kRefused, refusal}; }

}  // namespace hostnic
