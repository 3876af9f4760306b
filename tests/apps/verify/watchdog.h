// SPDX-License-Identifier: BSD-3-Clause
// Ends the process with a message instead of letting it hang.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace hostnic::verify {

// If nobody calls progress() or phase() for `seconds`, prints what was being done and what `dump`
// says, and leaves with _exit(1): the main thread may be stuck inside the library.
class Watchdog {
 public:
  Watchdog(unsigned seconds, std::function<std::string()> dump);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Any thread. `what` must be a string literal.
  void phase(const char* what) {
    phase_.store(what, std::memory_order_relaxed);
    progress();
  }
  void progress() { beats_.fetch_add(1, std::memory_order_relaxed); }

 private:
  void run();

  const unsigned seconds_;
  const std::function<std::string()> dump_;
  std::atomic<const char*> phase_{"starting"};
  std::atomic<uint64_t> beats_{0};
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace hostnic::verify
