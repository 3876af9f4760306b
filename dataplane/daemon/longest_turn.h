// SPDX-License-Identifier: BSD-3-Clause
// The longest that an lcore was busy with one thing, a turn of its NICs or a control thread's task,
// while everybody else's work waited: in time that it had a processor, for what others do with that
// is not the lcore's doing.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "dataplane/daemon/clock.h"

namespace hostnic {

class LongestTurn {
 public:
  // `cpu_now_ns` says how long the calling thread has had a processor.
  explicit LongestTurn(uint64_t (*cpu_now_ns)() = thread_cpu_now_ns) : cpu_now_ns_(cpu_now_ns) {}

  // Notes what began and ended then, in wall-clock time; called by the lcore for all that it does
  // but yielding and sleeping.
  void note(TimeNs begin_ns, TimeNs end_ns) {
    if (end_ns - begin_ns > longest_ns_.load(std::memory_order_relaxed) ||
        end_ns - looked_ns_ >= kLookNs)
      look(begin_ns, end_ns);
  }
  void clear() { longest_ns_.store(0, std::memory_order_relaxed); }  // called by the lcore
  // At most a millisecond more than the truth, where the lcore was preempted. [any thread]
  uint64_t ns() const { return longest_ns_.load(std::memory_order_relaxed); }

 private:
  // Asking for the processor's time is a system call.
  static constexpr uint64_t kLookNs = 1'000'000;

  // What was noted has had no more of the processor than the lcore had since the last look.
  void look(TimeNs begin_ns, TimeNs end_ns) {
    const uint64_t cpu_ns = cpu_now_ns_();
    const uint64_t took_ns = std::min<uint64_t>(end_ns - begin_ns, cpu_ns - looked_cpu_ns_);
    looked_ns_ = end_ns;
    looked_cpu_ns_ = cpu_ns;
    if (took_ns > ns()) longest_ns_.store(took_ns, std::memory_order_relaxed);
  }

  uint64_t (*cpu_now_ns_)();
  std::atomic<uint64_t> longest_ns_{0};
  TimeNs looked_ns_ = 0;
  uint64_t looked_cpu_ns_ = 0;
};

}  // namespace hostnic
