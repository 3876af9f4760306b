// SPDX-License-Identifier: BSD-3-Clause
// What a recovery policy (docs/transport.md rule 30) is to the sender: a strategy, which says in
// one place how losses are detected, what goes again with a lost PSN, when time alone will tell,
// and what else differs (RecoveryTraits). SendTracker owns one of them, and dispatches to it in
// with_strategy(); the driver asks for the traits and compares no policies.
//
// A policy is added in these places:
//   protocol/wire/bth.h               its number on the wire (print.cc, packet_parse.cc)
//   recovery/<name>.h                 the strategy
//   send_tracker.h, send_tracker.cc   the variant, and the line in reset() that chooses it
//   config/nic_keys.cc                its name
//   dataplane/nic/transport/hostnic/  what the receiver does differently
#pragma once

#include <concepts>
#include <cstdint>

#include "protocol/transport/scoreboard.h"

namespace hostnic {

struct RecoveryTraits {
  // Whether the answers to READs and atomics acknowledge what came before them (rule 20, one ACK
  // per burst): a receiver that acknowledges what it has counted promises less than it has
  // executed.
  bool answers_acknowledge;
  // Whether the congestion window limits first transmissions. A receiver that promises nothing
  // before it has all of a message would wait for ever once the window is smaller than a message.
  bool congestion_limits;
  // Whether what has left the NIC matters even while nothing is known to be lost.
  bool follows_transmission;
  // Whether the receiver counts a message's packets of one attempt: then what is repeated together,
  // and the rest of a message whose beginning went again, belong to one.
  bool one_attempt_per_message;
};

template <class S>
concept RecoveryStrategy = requires(S strategy, const S constant, Scoreboard& sent,
                                    const Scoreboard& seen, Psn psn, uint32_t window, TimeNs now_ns,
                                    uint64_t srtt_ns) {
  { S::kTraits } -> std::convertible_to<RecoveryTraits>;
  // Starts anew, with so many PSNs in flight at most.
  S(window);
  // Marks what counts as lost by now; an `srtt_ns` of 0 is unknown. Called when something sent
  // later than una, or a repetition, may have arrived.
  strategy.detect_losses(sent, now_ns, srtt_ns);
  // What goes again together with a PSN that is lost: all of it outstanding.
  { constant.repeated_with(seen, psn) } -> std::same_as<PsnRun>;
  // When time alone will show a transmission to be lost, a reordering window after it was made;
  // UINT64_MAX: none. detect_losses() marks that transmission at that time, or the deadline would
  // never end.
  { constant.overdue_ns(seen, srtt_ns) } -> std::same_as<TimeNs>;
};

// Marks a PSN and what goes again with it.
template <RecoveryStrategy S>
void mark_with_company(const S& strategy, Scoreboard& sent, Psn psn, RepeatCause cause) {
  const PsnRun run = strategy.repeated_with(sent, psn);
  if constexpr (S::kTraits.one_attempt_per_message) sent.level_attempts(run);
  sent.mark_missing(run, cause);
}

}  // namespace hostnic
