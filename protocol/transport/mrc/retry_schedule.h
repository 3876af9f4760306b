// SPDX-License-Identifier: BSD-3-Clause
// How long a requester of MRC waits for a peer that says nothing (docs/mrc.md, "Retries"): some
// retries a timeout apart, then some each of which waits twice as long as the one before. Pure, any
// thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace hostnic::mrc {

// The retries that wait longer and longer, which verbs have no attribute for: our choice.
inline constexpr uint32_t kExponentialRetries = 3;
inline constexpr uint32_t kMostExponentialRetries = 24;  // 25 means for ever

struct RetrySchedule {
  uint8_t timeout = 14;  // code, 0 to 31: 1.024 us times 2 to this; 0: for ever
  uint8_t linear = 7;    // retry_cnt
  uint32_t exponential = kExponentialRetries;

  uint64_t timeout_ns() const { return timeout == 0 ? 0 : uint64_t{1024} << (timeout & 31); }
  // How long the wait after the retry of this number is, 0 being the packet itself.
  uint64_t wait_ns(uint32_t retry) const {
    const uint32_t doublings = retry <= linear ? 0 : std::min(retry - linear, 32u);
    return timeout_ns() << doublings;
  }
  // The silence that ends the connection; UINT64_MAX: none does.
  uint64_t limit_ns() const {
    if (timeout == 0 || exponential > kMostExponentialRetries) return UINT64_MAX;
    uint64_t all = 0;
    for (uint32_t retry = 0; retry <= linear + exponential; ++retry) all += wait_ns(retry);
    return all;
  }
};

}  // namespace hostnic::mrc
