// SPDX-License-Identifier: BSD-3-Clause
// One rule at work: which packets it chooses, and what it remembers from packet to packet.
#pragma once

#include <cstdint>
#include <optional>

#include "protocol/impair/packet_info.h"
#include "protocol/impair/random.h"
#include "protocol/impair/rate_limiter.h"
#include "protocol/impair/script_table.h"
#include "protocol/impair/spec.h"

namespace hostnic::impair {

class RuleState {
 public:
  // Makes the state of a rule; `seed` differs from rule to rule, so that one rule's decisions do
  // not depend on another's.
  RuleState(const Rule& rule, uint64_t seed);

  const Rule& rule() const { return rule_; }
  Random& random() { return random_; }

  // Whether the rule's kind, peer, QP and the like fit the packet. The answer depends on the packet
  // alone.
  bool matches(const PacketInfo& info) const;

  // Whether this rule looks at more of a packet than its size.
  bool looks_at_packets() const {
    return rule_.selectors.looks_at_packets() || rule_.trigger.per_qp;
  }

  // Whether a packet that matches is hit. Call once per matching packet: it counts and draws.
  // `elapsed_ns` is the time since the stage's first packet. `packet_number` counts the stage's
  // packets from 1.
  bool triggers(const PacketInfo& info, TimeNs elapsed_ns, uint64_t packet_number);

  uint64_t draw_delay_ns();

  // kDelay: returns a release time that keeps the order of the packets that the rule matches.
  TimeNs in_order(TimeNs release_ns) {
    return last_release_ns_ = release_ns > last_release_ns_ ? release_ns : last_release_ns_;
  }

  RateLimiter* rate_limiter() { return rate_limiter_ ? &*rate_limiter_ : nullptr; }
  uint64_t script_forgotten() const;

 private:
  bool chooses(const PacketInfo& info, uint64_t packet_number);
  uint64_t count_packet(const PacketInfo& info, uint64_t packet_number);

  Rule rule_;
  Random random_;
  bool bad_state_ = false;  // kBurst
  uint64_t count_ = 0;      // kNth, kEvery, kFirst unless per QP
  TimeNs last_release_ns_ = 0;
  std::optional<ScriptTable> per_qp_counts_;
  std::optional<ScriptTable> hit_once_;
  std::optional<RateLimiter> rate_limiter_;
};

}  // namespace hostnic::impair
