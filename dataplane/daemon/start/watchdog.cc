// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/start/watchdog.h"

#include <algorithm>

#include "dataplane/daemon/start/service_manager.h"

namespace hostnic {

using std::chrono::steady_clock;

int Watchdog::wait_ms() const {
  if (interval_.count() == 0) return -1;
  using std::chrono::milliseconds;
  const auto left = std::chrono::ceil<milliseconds>(next_ - steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60'000));
}

void Watchdog::look() {
  const auto now = steady_clock::now();
  if (interval_.count() == 0 || now < next_) return;
  next_ = now + interval_;
  if (silent_->load(std::memory_order_acquire) != 0) return;
  tell_service_manager("WATCHDOG=1");
  silent_->store(lcores_.size(), std::memory_order_relaxed);
  for (const auto& lcore : lcores_)
    lcore->post([silent = silent_] { silent->fetch_sub(1, std::memory_order_release); });
}

}  // namespace hostnic
