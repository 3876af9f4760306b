// SPDX-License-Identifier: BSD-3-Clause
// The service thread of an open device: it does what no thread of the program does just now. It
// runs timers, takes reports for completion channels, brings a preempted poller to another core,
// and notices that hostnicd is gone or that the port went down. It sleeps while the program polls:
// it would compete with the thread it would help (docs/core-sharing.md).
#pragma once

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>

#include "protocol/hostif/control_message.h"
#include "protocol/hostif/core_sharing.h"
#include "protocol/types.h"
#include "verbs-shim/driver/driver.h"
#include "verbs-shim/runtime/control_client.h"
#include "verbs-shim/runtime/core_sharing.h"

namespace hostnic::runtime {

class ServiceThread {
 public:
  // What the thread serves. All of it must outlive the thread.
  struct Served {
    const DeviceInfo& device;
    driver::Driver& driver;
    SegmentHeader& header;
    const ControlClient& control;
    CoreSharing& cores;
    std::atomic<bool>& alive;            // false: hostnicd died or dropped this client
    std::function<bool()> refresh_gids;  // false: it is to be tried again
    std::function<bool()> settle_lines;  // says lines whose cause has come; true: some are left
  };

  explicit ServiceThread(const Served& served) : served_(served) {}
  // Ends the thread and waits for its end.
  ~ServiceThread();
  ServiceThread(const ServiceThread&) = delete;
  ServiceThread& operator=(const ServiceThread&) = delete;

  // Starts the thread, whose signals are all blocked. Returns 0 or an errno value.
  int start();
  // Called after posting: a thread in deep sleep must learn of the new timer; one that ticks will.
  void timer_set(TimeNs now_ns) {
    if (std::max(served_.driver.next_deadline_ns(), now_ns + kPolledTickNs) <
        wakes_ns_.load(std::memory_order_relaxed))
      wake_for_timer();
  }
  // Called in a forked child, where the thread does not exist.
  void abandon_after_fork() { runs_ = false; }

 private:
  // The ticks while timers run (rule 34, wake-ups). A program that polls runs the timers itself,
  // and each tick takes the lcore or the program off its core for 15 us.
  static constexpr uint64_t kTickNs = 1'000'000, kPolledTickNs = 4'000'000;
  static constexpr uint64_t kOwingTickNs = 10'000'000;  // lines wait for their cause

  void run();
  void sleep(uint32_t seen);
  bool hostnicd_is_gone(TimeNs now_ns);
  void tell_port_changes();
  void tell_address_changes();
  void look_at_waits(TimeNs now_ns);
  void explain(TimeNs now_ns);
  void wake_for_timer();

  const Served served_;
  pthread_t thread_{};
  bool runs_ = false;
  std::atomic<bool> known_{false};  // the registrar knows the thread as one of ours
  std::atomic<bool> stop_{false};
  std::atomic<TimeNs> wakes_ns_{0};  // when the thread looks next at the latest

  // The members from here on are the thread's own.
  TimeNs look_at_socket_ns_ = 0, look_at_waits_ns_ = 0;
  uint32_t port_changes_ = 0;  // of which the program was told
  uint32_t address_changes_ = 0;
  bool owes_lines_ = false;
};

}  // namespace hostnic::runtime
