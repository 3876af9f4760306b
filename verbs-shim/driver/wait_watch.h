// SPDX-License-Identifier: BSD-3-Clause
// The wait watch says which queue pair waits for long, and for what: a receive of the peer's, an
// answer, a program that polls, or arms, or sends. Pure; time comes in. With the driver lock held:
// hostnicd, which may take long to answer, is asked by whoever says the lines that are owed.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "protocol/types.h"

namespace hostnic::driver {

struct DriverCore;
class Cq;
class Qp;

// For how long something has not moved. What counts as one wait is told once.
class WaitClock {
 public:
  // A look: `marker` changes with each step forward. Returns whether it is time to tell: it has not
  // moved for `limit_ns`, and that has not been told. A look that comes late (the process was
  // stopped) counts as one in time.
  bool due(uint64_t marker, TimeNs now_ns, uint64_t limit_ns);
  // Nothing is waited for.
  void rest() { *this = {}; }
  uint64_t waited_ns() const { return waited_ns_; }

 private:
  static constexpr uint64_t kLongestStepNs = 2'000'000'000;
  uint64_t marker_ = 0, waited_ns_ = 0;
  TimeNs looked_ns_ = 0;  // 0: never
  bool told_ = false;
};

class WaitWatch {
 public:
  void look(DriverCore& driver, TimeNs now_ns);

 private:
  struct QpClocks {
    WaitClock sends, receives, unsaid;
  };
  void look_at(DriverCore& driver, Qp& qp, TimeNs now_ns);
  void look_at(Cq& cq, const Qp& user, TimeNs now_ns);

  std::unordered_map<uint32_t, QpClocks> qps_;  // by QPN; those that are there
  std::unordered_map<const Cq*, WaitClock> cqs_;
};

}  // namespace hostnic::driver
