// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/driver/requester/hostnic.h"

namespace hostnic::driver {

void HostnicRequester::start(SendQueue& queue, Psn first, TimeNs now_ns) {
  const DriverSettings& settings = queue.host.settings();
  *this = HostnicRequester();
  requests_.reset(first, settings.window, settings.policy);
  request_congestion_.reset(first, settings.window, settings.congestion_allowance_ns);
  if (settings.paths > 1) {
    paths_ = std::make_unique<PathTable>();
    paths_->reset(settings.paths);
    requests_.use_paths(*paths_);
  }
  answers_.start(settings, paths_.get());
  tell_paths(queue);
  queue.status().acknowledged_psn.store(first.value(), std::memory_order_release);
  highest_acceptable_ = first + (kInitialWindow - 1);
  patience_.start(now_ns);
  patience_.tell_limits(queue, kStretch);
}

QpGauges HostnicRequester::gauges(const SendQueue& queue) const {
  return {.requests_in_flight = requests_.in_flight(),
          .responses_in_flight = answers_.in_flight(),
          .request_window = requests_.window(),
          .response_window = answers_.tracker().window(),
          .rto_ns = rto_ns(queue)};
}

}  // namespace hostnic::driver
