// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/impair/rate_limiter.h"

namespace hostnic::impair {

void RateLimiter::let_depart(TimeNs now) {
  while (queued_ > 0 && departures_[oldest_] <= now) {
    oldest_ = (oldest_ + 1) % departures_.size();
    --queued_;
  }
}

void RateLimiter::carry(uint32_t bytes, TimeNs now) {
  if (busy_until_ <= now) {
    busy_until_ = now;
    remainder_ = 0;
  }
  const uint64_t work = uint64_t{bytes} * 8 * 1'000'000'000 + remainder_;
  busy_until_ += work / bits_per_second_;
  remainder_ = work % bits_per_second_;
}

std::optional<TimeNs> RateLimiter::admit(uint32_t bytes, TimeNs now) {
  let_depart(now);
  if (queued_ == departures_.size()) return std::nullopt;
  carry(bytes, now);
  departures_[(oldest_ + queued_) % departures_.size()] = busy_until_;
  ++queued_;
  return busy_until_;
}

}  // namespace hostnic::impair
