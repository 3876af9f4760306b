// SPDX-License-Identifier: BSD-3-Clause
// One thread's work: its connections, and everything else that it does at random.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "tests/apps/stress/common.h"
#include "tests/apps/stress/connection.h"
#include "tests/apps/stress/crowd.h"

namespace hostnic::stress {

class Worker {
 public:
  Worker(unsigned worker_number, uint64_t seed, std::vector<std::unique_ptr<Shared>>& near,
         std::vector<std::unique_ptr<Shared>>& far, std::vector<Connection*> mine);

  // Until `end_ns`, then closes all that is its own.
  void run(uint64_t end_ns);

  const unsigned number;
  // For the watchdog.
  const char* doing() const { return doing_.load(std::memory_order_relaxed); }
  uint64_t steps() const { return steps_.load(std::memory_order_relaxed); }

 private:
  void step();
  void on_connection(Connection& connection);
  void open(Connection& connection);
  // Polls the queues of all connections, and keeps receives posted: other threads' connections may
  // wait for what is in them.
  void serve();
  Shared& any_shared();
  void note(const char* what) {
    doing_.store(what, std::memory_order_relaxed);
    steps_.fetch_add(1, std::memory_order_relaxed);
  }

  Rng rng_;
  std::vector<std::unique_ptr<Shared>>& near_;
  std::vector<std::unique_ptr<Shared>>& far_;
  std::vector<Connection*> connections_;
  std::atomic<const char*> doing_{"starting"};
  std::atomic<uint64_t> steps_{0};
};

}  // namespace hostnic::stress
