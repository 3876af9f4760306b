// SPDX-License-Identifier: BSD-3-Clause
// Whether sched_yield() is a good way to share the core just now.
//
// With a partner of ours on the core (a polling program, the NIC's lcore) it is: the partner does
// what we wait for and yields back within microseconds. With a stranger there that only computes,
// we come back when its time slice is over, milliseconds later, with everything stalled. Nothing
// tells which it is, but how long a yield took does. One object per thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace hostnic {

// A yield that took longer than this let others run.
inline constexpr uint64_t kYieldUsedNs = 2'000;

class YieldCost {
 public:
  // A costly yield is remembered for `remember_ns`; where another comes soon after that, twice as
  // long each time, at most for `remember_at_most_ns`. Cheap yields in between say little:
  // strangers rest now and then.
  YieldCost(uint64_t remember_ns, uint64_t remember_at_most_ns)
      : remember_first_ns_(remember_ns), remember_at_most_ns_(remember_at_most_ns) {}

  // Takes note of a yield that began and ended then.
  void took(uint64_t begin_ns, uint64_t end_ns) {
    if (end_ns - begin_ns <= kCostlyNs) return;
    if (begin_ns > costly_until_ns_ + kForgetNs) remember_ns_ = remember_first_ns_;
    costly_until_ns_ = end_ns + remember_ns_;
    remember_ns_ = std::min(2 * remember_ns_, remember_at_most_ns_);
  }
  // Whether yields are costly now: then rather sleep a little, because who wakes up is let in soon.
  bool costly(uint64_t now_ns) const { return now_ns < costly_until_ns_; }

 private:
  static constexpr uint64_t kCostlyNs = 1'000'000, kForgetNs = 5'000'000;

  uint64_t remember_first_ns_, remember_at_most_ns_;
  uint64_t remember_ns_ = remember_first_ns_, costly_until_ns_ = 0;
};

}  // namespace hostnic
