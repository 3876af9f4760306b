// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/transport/dcqcn.h"

namespace hostnic {
namespace {

// Faster ones are taken for this one: rates in kb/s have 32 bits.
constexpr uint32_t kFastestLineMbps = 4'000'000;
// Senders that wait are woken at multiples of this: thousands of them with one look at the timers.
constexpr TimeNs kWakeGridNs = 16'384;
constexpr TimeNs kIdleNs = 10'000'000;

// Whether `due_ns` has come, of times that may wrap.
bool has_come(TimeNs due_ns, TimeNs now_ns) { return static_cast<int64_t>(now_ns - due_ns) >= 0; }

}  // namespace

void DcqcnRate::reset(uint32_t line_rate_mbps) {
  *this = DcqcnRate();
  const uint32_t known_mbps = line_rate_mbps == 0 ? kUnknownLineRateMbps : line_rate_mbps;
  line_kbps_ = std::min(known_mbps, kFastestLineMbps) * 1000;
}

// The paper's equation 1. A sender that was at the line rate begins as a new one does, with an
// alpha of 1: what it knew is of another congestion.
bool DcqcnRate::on_cnp(TimeNs now_ns) {
  if (!limited_) {
    limited_ = true;
    rate_kbps_ = line_kbps_;
    alpha_ = kOne;
  } else {
    if (!has_come(cut_ns_ + kDcqcn.cut_interval_ns, now_ns)) return false;
    decay_alpha(now_ns);
  }
  target_kbps_ = rate_kbps_;
  rate_kbps_ -= static_cast<uint32_t>(rate_kbps_ * alpha_ >> (kAlphaBits + 1));
  rate_kbps_ = std::max(rate_kbps_, kDcqcn.minimum_kbps);
  alpha_ += (kOne >> kDcqcn.gain_shift) - (alpha_ >> kDcqcn.gain_shift);
  cut_ns_ = now_ns;
  alpha_due_ns_ = now_ns + kDcqcn.alpha_interval_ns;
  timer_due_ns_ = now_ns + kDcqcn.increase_interval_ns;
  timer_events_ = byte_events_ = 0;
  sent_bytes_ = 0;
  ++cuts_;
  return true;
}

// The paper's equation 2, for each interval that has passed.
void DcqcnRate::decay_alpha(TimeNs now_ns) {
  for (; has_come(alpha_due_ns_, now_ns); alpha_due_ns_ += kDcqcn.alpha_interval_ns)
    alpha_ -= alpha_ >> kDcqcn.gain_shift;
}

void DcqcnRate::on_timer() {
  timer_due_ns_ += kDcqcn.increase_interval_ns;
  ++timer_events_;
  increase();
}

void DcqcnRate::on_sent(uint64_t bytes) {
  sent_bytes_ += bytes;
  while (limited_ && sent_bytes_ >= kDcqcn.increase_bytes) {
    sent_bytes_ -= kDcqcn.increase_bytes;
    ++byte_events_;
    increase();
  }
}

// The paper's equations 3 and 4, and 802.1Qau's hyper increase: fast recovery while neither the
// timer nor the byte counter has had more than F events, hyper increase when both have.
void DcqcnRate::increase() {
  const uint32_t most = std::max(timer_events_, byte_events_);
  const uint32_t least = std::min(timer_events_, byte_events_);
  if (most > kDcqcn.fast_recoveries) {
    const uint64_t step_kbps = least > kDcqcn.fast_recoveries
                                   ? uint64_t{least - kDcqcn.fast_recoveries} * kDcqcn.hyper_kbps
                                   : kDcqcn.additive_kbps;
    target_kbps_ = static_cast<uint32_t>(std::min<uint64_t>(target_kbps_ + step_kbps, line_kbps_));
  }
  // Rounded up, so that it gets there.
  rate_kbps_ += (target_kbps_ - rate_kbps_ + 1) / 2;
  if (rate_kbps_ < line_kbps_) return;
  limited_ = false;
  ++recoveries_;
}

bool DcqcnLimiter::on_cnp(TimeNs now_ns) {
  if (limited()) advance(now_ns);
  const bool begins = !limited();
  if (!rate_.on_cnp(now_ns)) return false;
  if (begins) bucket_.reset(now_ns);
  return true;
}

// The bucket fills at each rate for the time that it lasted. A sender that nobody asked about for
// long is soon at the line rate, where this ends.
void DcqcnLimiter::advance(TimeNs now_ns) {
  while (limited() && has_come(rate_.timer_due_ns(), now_ns)) {
    bucket_.settle(rate_.timer_due_ns(), rate_.kbps());
    rate_.on_timer();
  }
  if (!limited()) return;
  rate_.decay_alpha(now_ns);
  bucket_.settle(now_ns, rate_.kbps());
}

// A waiter looks again when the rate has grown: at the least rate a packet takes so long that it
// would be the line rate by then, and all who met congestion together would come back at that.
TimeNs DcqcnLimiter::wake_ns() const {
  if (!bucket_.owes()) return bucket_.settled_ns() + kIdleNs;
  const TimeNs paid_ns = bucket_.paid_ns(rate_.kbps()), grown_ns = rate_.timer_due_ns();
  return ((has_come(paid_ns, grown_ns) ? paid_ns : grown_ns) | (kWakeGridNs - 1)) + 1;
}

}  // namespace hostnic
