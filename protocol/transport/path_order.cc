// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/transport/path_order.h"

#include <algorithm>

namespace hostnic {

// Moments that are close to each other are one, the earlier.
void PathOrder::end_report(uint32_t sequence, TimeNs now_ns) {
  if (end_moment_ != first_moment_) {
    Moment& last = moments_[(end_moment_ - 1) % kMoments];
    if (!before(last.sequence, sequence)) return;
    if (now_ns - last.at_ns < table_->longest_ns() >> kSpacingShift) {
      last.sequence = sequence;
      return;
    }
  }
  if (end_moment_ - first_moment_ == kMoments) ++first_moment_;
  moments_[end_moment_++ % kMoments] = {sequence, now_ns};
}

// When something that was sent after a transmission had first arrived; of what is too long ago the
// oldest moment that is known.
TimeNs PathOrder::overtaken_ns(uint32_t sequence) const {
  uint32_t low = first_moment_, high = end_moment_;
  while (low != high) {
    const uint32_t middle = low + (high - low) / 2;
    if (before(sequence, moment(middle).sequence))
      high = middle;
    else
      low = middle + 1;
  }
  return low == end_moment_ ? UINT64_MAX : moment(low).at_ns;
}

TimeNs PathOrder::may_come_until_ns(Psn psn, uint32_t sequence, uint64_t srtt_ns,
                                    uint32_t quarters) const {
  const TimeNs overtaken = overtaken_ns(sequence);
  if (overtaken == UINT64_MAX) return UINT64_MAX;
  // A path of which nothing is known may be as slow as the slowest, and as uncertain as anything
  // that was measured once.
  const RttEstimator& rtt = table_->rtt(at(psn).path);
  const uint64_t longest_ns = std::max(table_->longest_ns(), srtt_ns);
  const uint64_t usual_ns = rtt.valid() ? rtt.srtt_ns() : longest_ns;
  const uint64_t varies_ns = rtt.valid() ? rtt.rttvar_ns() : longest_ns / 2;
  const uint64_t longer_ns = usual_ns - std::min(table_->shortest_ns(), usual_ns);
  return overtaken + longer_ns + std::max((usual_ns >> 2) * (1 + quarters), 2 * varies_ns);
}

}  // namespace hostnic
