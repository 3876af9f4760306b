// SPDX-License-Identifier: BSD-3-Clause
// What programs do to a verbs library besides posting, each kind in threads of its own: --kinds.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/apps/stress/common.h"
#include "tests/apps/verify/rng.h"

namespace hostnic::stress {

using verify::Rng;

// A thread that works until it is told to stop. The watchdog looks at `steps`.
struct KindThread {
  const char* kind = "";
  std::atomic<uint64_t> steps{0};
  std::atomic<const char*> doing{"starting"};
  std::jthread thread;

  void note(const char* what) {
    doing.store(what, std::memory_order_relaxed);
    steps.fetch_add(1, std::memory_order_relaxed);
  }
};
using KindThreads = std::vector<std::unique_ptr<KindThread>>;

// Two contexts, opened by whoever makes this, that one kind's threads share.
class Contexts {
 public:
  explicit Contexts(const Options& options);
  ~Contexts();
  Contexts(const Contexts&) = delete;
  Contexts& operator=(const Contexts&) = delete;
  ibv_context* const near;
  ibv_context* const far;
};

// A connected pair of RC queue pairs, each with a completion queue of its own, for one thread.
class Link {
 public:
  explicit Link(const Contexts& contexts);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  struct Side {
    ibv_pd* pd = nullptr;
    ibv_cq* cq = nullptr;
    ibv_qp* qp = nullptr;
    uint32_t psn = 0;
  };
  Side near, far;

  // Both post, and wait until both sides (WRITE: the near one) have their completion.
  void send(const ibv_sge& from, const ibv_sge& to);
  void write(const ibv_sge& from, uint64_t to, uint32_t rkey);

 private:
  void open(ibv_context* context, Side& side);
  static void connect(Side& side, const Side& peer, ibv_context* other);
  static void wait_for_one(ibv_cq* cq, const char* what);
};

// Bytes that say what they should be: a function of `stream` and their place.
void fill(std::byte* data, size_t bytes, uint64_t stream);
void check(const std::byte* data, size_t bytes, uint64_t stream, const char* what);

ibv_context* open_one(const std::string& name);

// Each kind: adds its threads, which end when they are asked to stop.
void start_registering(const Options& options, KindThreads& threads);
void start_cancelling(const Options& options, KindThreads& threads);
void start_system_calls(const Options& options, KindThreads& threads);
void start_opening(const Options& options, KindThreads& threads);

// In a process of its own, and the first thing in it: several threads open devices at once and use
// them.
void open_at_once(const Options& options);

// Those of Options::kinds, for so long, but for the mixed work.
void run_kinds(const Options& options, uint64_t end_ns);

}  // namespace hostnic::stress
