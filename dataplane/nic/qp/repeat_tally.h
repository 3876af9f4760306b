// SPDX-License-Identifier: BSD-3-Clause
// What a queue pair has sent again, for people who ask: how much for which cause, and what became
// of the last repetition.
#pragma once

#include <array>
#include <cstdint>

#include "protocol/psn.h"
#include "protocol/repeat_cause.h"
#include "protocol/types.h"

namespace hostnic {

struct RepeatTally {
  std::array<uint64_t, kRepeatCauses> packets{};  // by cause; kNone has no place
  // The last one.
  RepeatCause cause = RepeatCause::kNone;  // kNone: there was none
  Psn psn;                                 // of its last packet
  TimeNs sent_ns = 0;
  TimeNs acknowledged_ns = 0;  // 0: not yet

  uint64_t of(RepeatCause which) const { return packets[static_cast<size_t>(which) - 1]; }
  void note(RepeatCause why, uint32_t count, Psn last, TimeNs now_ns) {
    packets[static_cast<size_t>(why) - 1] += count;
    cause = why;
    psn = last;
    sent_ns = now_ns;
    acknowledged_ns = 0;
  }
  // Everything before `una` is acknowledged. Returns whether that is still waited for.
  bool note_acknowledged(Psn una, TimeNs now_ns) {
    if (distance(psn + 1, una) < 0) return true;
    acknowledged_ns = now_ns;
    return false;
  }
};

}  // namespace hostnic
