// Whether sched_yield() is a good way to share the core just now.
//
// With a partner of ours on the core (a polling program, the NIC's lcore) it is: the partner does
// what we wait for and yields back within microseconds. With a stranger there that only computes,
// we come back when its time slice is over, milliseconds later, with everything stalled. Nothing
// tells which it is, but how long a yield took does. One object per thread.
#pragma once

#include <cstdint>

namespace hostnic {

class YieldCost {
 public:
  // A yield that began and ended then.
  void took(uint64_t begin_ns, uint64_t end_ns) {
    if (end_ns - begin_ns > kDearNs) dear_until_ns_ = end_ns + kRememberNs;
  }
  // Rather sleep a little: who wakes up is let in soon.
  bool dear(uint64_t now_ns) const { return now_ns < dear_until_ns_; }

 private:
  static constexpr uint64_t kDearNs = 300'000;
  static constexpr uint64_t kRememberNs = 50'000'000;

  uint64_t dear_until_ns_ = 0;
};

}  // namespace hostnic
