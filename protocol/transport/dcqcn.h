// SPDX-License-Identifier: BSD-3-Clause
// How fast a sender of the standard's transport may send once the network has told it of congestion
// (docs/roce.md): the reaction point of DCQCN (Zhu et al., "Congestion Control for Large-Scale RDMA
// Deployments", SIGCOMM 2015), which is that of 802.1Qau with alpha in place of its feedback, and a
// token bucket that holds what leaves to that rate.
//
// A sender is unlimited until the first congestion notification (CNP), and again when it is back at
// the line rate. Time comes in with each call and may wrap; nothing here waits. What hot paths call
// is in this header.
#pragma once

#include <algorithm>
#include <cstdint>

#include "protocol/types.h"

namespace hostnic {

// The paper's values, where it has one (its sections 3 and 5); adapters have names for the same.
struct DcqcnParameters {
  uint32_t gain_shift = 8;                 // g = 1/256
  uint64_t alpha_interval_ns = 55'000;     // K: without a CNP for so long, alpha decays
  uint64_t cut_interval_ns = 50'000;       // N: CNPs come no faster, and what does cuts once
  uint64_t increase_interval_ns = 55'000;  // T, the timer (rpg_time_reset)
  uint64_t increase_bytes = 10'000'000;    // B, the byte counter (rpg_byte_reset)
  uint32_t fast_recoveries = 5;            // F (rpg_threshold)
  uint32_t additive_kbps = 40'000;         // R_AI (rpg_ai_rate)
  // R_HAI (rpg_hai_rate), which the paper leaves open: ten times R_AI, as in 802.1Qau and adapters.
  uint32_t hyper_kbps = 400'000;
  uint32_t minimum_kbps = 1'000;  // adapters' rpg_min_rate; the paper has none
};
inline constexpr DcqcnParameters kDcqcn;

// A port's speed where it has none or nobody knows it.
inline constexpr uint32_t kUnknownLineRateMbps = 100'000;

// The rates. Its owner calls it in the order of time.
class DcqcnRate {
 public:
  // Starts anew, unlimited.
  void reset(uint32_t line_rate_mbps);
  bool limited() const { return limited_; }
  // The current rate (R_C) and the target rate (R_T), while limited.
  uint32_t kbps() const { return rate_kbps_; }
  uint32_t target_kbps() const { return target_kbps_; }
  uint32_t alpha_permille() const { return static_cast<uint32_t>(alpha_ * 1000 >> kAlphaBits); }
  // How often the rate was cut, and the line rate reached again.
  uint32_t cuts() const { return cuts_; }
  uint32_t recoveries() const { return recoveries_; }

  // Takes a CNP. Returns whether the rate was cut: at most once per cut_interval_ns.
  bool on_cnp(TimeNs now_ns);
  // When on_timer() is due, while limited.
  TimeNs timer_due_ns() const { return timer_due_ns_; }
  void on_timer();
  void on_sent(uint64_t bytes);
  void decay_alpha(TimeNs now_ns);

 private:
  static constexpr uint32_t kAlphaBits = 24;
  static constexpr uint64_t kOne = uint64_t{1} << kAlphaBits;

  void increase();

  bool limited_ = false;
  uint32_t line_kbps_ = 0, rate_kbps_ = 0, target_kbps_ = 0;
  uint64_t alpha_ = 0;  // in units of 1 / kOne
  TimeNs cut_ns_ = 0, alpha_due_ns_ = 0, timer_due_ns_ = 0;
  uint64_t sent_bytes_ = 0;                      // since the last event of the byte counter
  uint32_t timer_events_ = 0, byte_events_ = 0;  // since the last cut
  uint32_t cuts_ = 0, recoveries_ = 0;
};

// What may leave at a rate. Tokens are kb/s times ns, so that nothing is divided or rounded when
// they are counted; one packet may be owed.
class TokenBucket {
 public:
  // What idle time saves up: a thread that was woken late catches up with this much of it.
  static constexpr uint64_t kDepthNs = 100'000;

  void reset(TimeNs now_ns) {
    tokens_ = 0;
    settled_ns_ = now_ns;
  }
  // Counts the time up to `now_ns`, in which the rate was `kbps`.
  void settle(TimeNs now_ns, uint32_t kbps) {
    const auto elapsed_ns = static_cast<int64_t>(now_ns - settled_ns_);
    if (elapsed_ns <= 0) return;
    settled_ns_ = now_ns;
    tokens_ = std::min(tokens_ + std::min(elapsed_ns, kLongestNs) * kbps,
                       static_cast<int64_t>(kDepthNs * kbps));
  }
  void take(uint64_t bytes) { tokens_ -= static_cast<int64_t>(bytes * kTokensPerByte); }
  bool owes() const { return tokens_ < 0; }
  uint64_t bytes() const { return owes() ? 0 : static_cast<uint64_t>(tokens_) / kTokensPerByte; }
  // When nothing is owed any more, at `kbps`. This divides; for who has to wait.
  TimeNs paid_ns(uint32_t kbps) const {
    if (!owes()) return settled_ns_;
    return settled_ns_ + (static_cast<uint64_t>(-tokens_) + kbps - 1) / kbps;
  }
  TimeNs settled_ns() const { return settled_ns_; }

 private:
  static constexpr uint64_t kTokensPerByte = 8'000'000;
  // Longer than any packet is owed; by the fastest rate it is no overflow.
  static constexpr int64_t kLongestNs = 1'000'000'000;

  int64_t tokens_ = 0;
  TimeNs settled_ns_ = 0;
};

class DcqcnLimiter {
 public:
  // Ethernet's header, checksum, preamble and gap, IPv4, UDP, BTH and ICRC: what a packet has of a
  // line beside its payload.
  static constexpr uint32_t kOverheadBytes = 82;

  void reset(uint32_t line_rate_mbps) { rate_.reset(line_rate_mbps); }
  bool limited() const { return rate_.limited(); }
  const DcqcnRate& rate() const { return rate_; }

  // Takes a CNP. Returns whether the rate was cut.
  bool on_cnp(TimeNs now_ns);
  // While limited: does what time does, up to `now_ns`. To be called before packets() and
  // wake_ns(), which are of that time.
  void advance(TimeNs now_ns);
  // How many packets of 1 << `mtu_shift` bytes may leave.
  uint32_t packets(uint32_t mtu_shift) const {
    return bucket_.owes() ? 0 : 1 + static_cast<uint32_t>(bucket_.bytes() >> mtu_shift);
  }
  // Notes that packets leave.
  void take(uint32_t packets, uint64_t payload_bytes) {
    const uint64_t bytes = payload_bytes + uint64_t{packets} * kOverheadBytes;
    bucket_.take(bytes);
    rate_.on_sent(bytes);
  }
  // When advance() is to be called again: when packets may leave or the rate grows, if none may;
  // else in a while, so that the rate grows where nobody sends.
  TimeNs wake_ns() const;

 private:
  DcqcnRate rate_;
  TokenBucket bucket_;
};

}  // namespace hostnic
