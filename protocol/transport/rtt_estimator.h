// SPDX-License-Identifier: BSD-3-Clause
// A smoothed round trip time, by RFC 6298 arithmetic. Pure, one thread.
#pragma once

#include <cstdint>

namespace hostnic {

class RttEstimator {
 public:
  void sample(uint64_t rtt_ns) {
    if (samples_++ == 0) {
      srtt_ns_ = rtt_ns;
      rttvar_ns_ = rtt_ns / 2;
      return;
    }
    const uint64_t deviation = srtt_ns_ > rtt_ns ? srtt_ns_ - rtt_ns : rtt_ns - srtt_ns_;
    rttvar_ns_ += (deviation >> 2) - (rttvar_ns_ >> 2);
    srtt_ns_ += (rtt_ns >> 3) - (srtt_ns_ >> 3);
  }
  bool valid() const { return samples_ != 0; }
  uint64_t srtt_ns() const { return srtt_ns_; }
  uint64_t rttvar_ns() const { return rttvar_ns_; }

 private:
  uint64_t srtt_ns_ = 0, rttvar_ns_ = 0;
  uint32_t samples_ = 0;
};

}  // namespace hostnic
