// SPDX-License-Identifier: BSD-3-Clause
// For how long a peer may be silent before a connection counts as dead.
#pragma once

#include <algorithm>
#include <cstdint>

#include "verbs-shim/driver/qp_state.h"
#include "verbs-shim/driver/types.h"

namespace hostnic::driver {

// Probes and timeouts without an answer, before a connection counts as dead.
inline constexpr uint32_t kMinRetries = 4;
// Evaluations may follow each other faster than the NIC's turns.
inline constexpr uint64_t kMinStallNs = 1'000'000;
// Time for which a NIC that does not run excuses silence.
inline constexpr uint64_t kMaxStallNs = 2'000'000'000;

// A timeout may be detected up to four times as late as its code says (InfiniBand 9.7.6.1.3).
// Adapters use that for short ones, and programs that choose their attributes rely on it: with
// timeout 14 and retry_cnt 7, as many do, a link that was down for a second costs no connection.
// Longer ones adapters detect nearly when they say, and programs rely on that, too: so nothing is
// stretched beyond what those attributes make of it, and all by a quarter.
inline constexpr uint64_t kTimeoutStretch = 4;
inline constexpr uint64_t kStretchedToNs = 2'150'000'000;

// A time that passes `timescale` times as fast. Dividing takes long where there is nothing to do.
inline uint64_t scaled_ns(uint64_t time_ns, uint32_t timescale) {
  return timescale == 1 ? time_ns : time_ns / timescale;
}

// The time without progress after which a connection fails; UINT64_MAX: it never does.
inline uint64_t silence_limit_ns(const QpAttr& attr, uint32_t timescale) {
  // The shortest time that counts as failure: below it, scheduling of ordinary processes would end
  // connections.
  constexpr uint64_t kLeastNs = 64'000'000;
  const uint64_t timeout = ack_timeout_ns(attr.timeout);
  if (timeout == 0) return UINT64_MAX;
  const uint64_t promised = (uint64_t{attr.retry_cnt} + 1) * timeout;
  const uint64_t limit =
      std::min(kTimeoutStretch * promised, std::max(kStretchedToNs, promised + promised / 4));
  return std::max(kLeastNs, scaled_ns(limit, timescale));
}

// How many retries must have been made as well: time alone proves nothing on a machine that is
// short of it.
inline uint32_t least_retries(const QpAttr& attr) {
  return std::min(uint32_t{attr.retry_cnt} + 1, kMinRetries);
}

// Whether the own NIC has looked for answers since they were due. One that has had no processor
// since has not received what arrived meanwhile, and nothing of that is lost.
class NicLooks {
 public:
  static constexpr uint64_t kLookAgainNs = 50'000;

  // kNo: it has to be woken, and this to be asked again after kLookAgainNs. kLate: it has got a
  // processor again after long, and has yet to send and receive what waited for it: the time begins
  // anew.
  enum class Answer : uint8_t { kYes, kNo, kLate };
  // `due_ns`: when the answer was due, at most now. The NIC is excused for kMaxStallNs in a row at
  // most.
  Answer looked_since(TimeNs due_ns, TimeNs nic_turn_ns) {
    if (due_ns_ == 0) due_ns_ = due_ns;
    const bool looked = nic_turn_ns >= due_ns_;
    if (!looked && waited_ns_ < kMaxStallNs) {
      waited_ns_ += kLookAgainNs;
      return Answer::kNo;
    }
    due_ns_ = 0;
    const bool late = looked && waited_ns_ >= kMinStallNs;
    waited_ns_ = 0;
    return late ? Answer::kLate : Answer::kYes;
  }

 private:
  TimeNs due_ns_ = 0;
  uint64_t waited_ns_ = 0;
};

}  // namespace hostnic::driver
