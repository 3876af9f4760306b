// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/verify/watchdog.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

namespace hostnic::verify {

Watchdog::Watchdog(unsigned seconds, std::function<std::string()> dump)
    : seconds_(seconds), dump_(std::move(dump)), thread_([this] { run(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_one();
  thread_.join();
}

void Watchdog::run() {
  constexpr auto kTick = std::chrono::milliseconds(250);
  uint64_t seen = beats_;
  auto since = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, kTick, [this] { return stop_; })) {
    const auto now = std::chrono::steady_clock::now();
    if (const uint64_t beats = beats_; beats != seen) {
      seen = beats;
      since = now;
    } else if (now - since > std::chrono::seconds(seconds_)) {
      fmt::print(stderr, "hostnic-verify: no progress for {} s while {}\n{}", seconds_,
                 phase_.load(), dump_());
      fflush(stderr);
      _exit(1);
    }
  }
}

}  // namespace hostnic::verify
