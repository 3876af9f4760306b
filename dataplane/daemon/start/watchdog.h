// SPDX-License-Identifier: BSD-3-Clause
// Signs of life for the service manager: the control thread gives them, and only while every lcore
// takes turns. A hostnicd that stands is so ended and started anew.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "dataplane/daemon/lcore/lcore_loop.h"

namespace hostnic {

class Watchdog {
 public:
  // `limit_ns` is how long the service manager waits for a sign; 0: nobody waits.
  Watchdog(const std::vector<std::unique_ptr<LcoreLoop>>& lcores, uint64_t limit_ns)
      : lcores_(lcores), interval_(limit_ns / 4) {}

  // When look() is to be called at the latest; -1: it need not.
  int wait_ms() const;
  // Gives a sign if it is time and every lcore has answered since the last, and asks the lcores
  // anew. Waits for none: one that stands is asked no more.
  void look();

 private:
  const std::vector<std::unique_ptr<LcoreLoop>>& lcores_;
  std::chrono::nanoseconds interval_;  // so often, in the time that the manager waits
  std::chrono::steady_clock::time_point next_{};
  // How many lcores have yet to answer. An lcore may answer when this is gone.
  std::shared_ptr<std::atomic<uint64_t>> silent_ = std::make_shared<std::atomic<uint64_t>>(0);
};

}  // namespace hostnic
