// SPDX-License-Identifier: BSD-3-Clause
// The longest that an lcore was busy with one thing, a turn of its NICs or a control thread's task,
// while everybody else's work waited: in time that it had a processor or slept in the kernel, which
// a client may have made it do. What others do with the processor is not the lcore's doing.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "dataplane/daemon/lcore/clock.h"

namespace hostnic {

class LongestTurn {
 public:
  // `times_now` says what has become of the calling thread's time.
  explicit LongestTurn(ThreadTimes (*times_now)() = thread_times_now) : times_now_(times_now) {}

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

  // What was noted has had no more of the processor than the lcore had since the last look, unless
  // it slept: then it has not waited longer for one than the lcore has.
  void look(TimeNs begin_ns, TimeNs end_ns) {
    const ThreadTimes now = times_now_();
    const uint64_t length_ns = end_ns - begin_ns;
    uint64_t took_ns = std::min(length_ns, now.cpu_ns - looked_.cpu_ns);
    if (now.sleeps != looked_.sleeps && now.waited_ns != ThreadTimes::kUnknown) {
      const uint64_t waited_ns = std::min(length_ns, now.waited_ns - looked_.waited_ns);
      took_ns = std::max(took_ns, length_ns - waited_ns);
    }
    looked_ns_ = end_ns;
    looked_ = now;
    if (took_ns > ns()) longest_ns_.store(took_ns, std::memory_order_relaxed);
  }

  ThreadTimes (*times_now_)();
  std::atomic<uint64_t> longest_ns_{0};
  TimeNs looked_ns_ = 0;
  ThreadTimes looked_;
};

}  // namespace hostnic
