// SPDX-License-Identifier: BSD-3-Clause
// How a NIC finds out what a host speaks (docs/roce.md, "auto"): it asks whether the host has a
// service that only hostnics have, by InfiniBand's service ID resolution (SIDR_REQ, SIDR_REP),
// which all that speak rdma_cm answer. What a hostnic says of itself is in the private data of
// both.
//
//   magic "HNIC" 32 | format 8 (1) | native version 8 | recovery policy 8 | wanted transport 8
//
// Pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "protocol/cm/mad.h"
#include "protocol/transport_kind.h"

namespace hostnic {

namespace cm {

// An external organisation's (0x10) service, of one whose OUI is locally administered.
inline constexpr uint64_t kPeerService = 0x1002'686e'6963'0001;

// What a hostnic says of itself to one host.
struct PeerFacts {
  uint8_t version = 0;                     // wire::kNativeVersion
  uint8_t policy = 0;                      // wire::Policy
  Transport wanted = Transport::kHostnic;  // as is_wanted() has it
  bool operator==(const PeerFacts&) const = default;
};

// The values of Transport that a host can want; as many as are told.
inline constexpr uint8_t kWantedTransports = 5;
constexpr bool is_wanted(uint8_t transport) {
  return transport < kWantedTransports && Transport{transport} != Transport::kUnreliable;
}

// Whether a host speaks nothing but one transport that is not the native one.
constexpr bool speaks_foreign_only(Transport wanted) {
  return wanted == Transport::kRoce || wanted == Transport::kMrc;
}

// Whether two hosts, at least one of which leaves it to this, speak the native transport to each
// other: alike at both ends.
constexpr bool native_between(const PeerFacts& a, const PeerFacts& b) {
  return !speaks_foreign_only(a.wanted) && !speaks_foreign_only(b.wanted) &&
         a.version == b.version && a.policy == b.policy;
}

struct PeerQuestion {
  uint64_t transaction_id = 0;
  uint32_t request_id = 0;
  PeerFacts facts;  // the asker's
  bool operator==(const PeerQuestion&) const = default;
};

struct PeerAnswer {
  uint64_t transaction_id = 0;
  uint32_t request_id = 0;
  std::optional<PeerFacts>
      facts;  // nothing: whoever answered is no hostnic that knows the question
  bool operator==(const PeerAnswer&) const = default;
};

// What a management datagram is of these; nothing: another one, or one that says the impossible.
std::optional<PeerQuestion> question_in(const Mad& mad);
// Any SIDR_REP may be an answer: whoever has asked knows by the numbers.
std::optional<PeerAnswer> answer_in(const Mad& mad);

Mad mad_of(const PeerQuestion& question);
Mad mad_of(const PeerAnswer& answer);

}  // namespace cm
}  // namespace hostnic
