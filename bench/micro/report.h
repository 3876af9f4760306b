// SPDX-License-Identifier: BSD-3-Clause
// How every benchmark runs and what it reports: nanoseconds per operation and bytes per second, or,
// under callgrind, instructions per operation (instructions.py).
#pragma once

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace hostnic::bench {

// Tells callgrind, if this runs under it, what to count. Costs a few instructions without.
void begin_counting();
void resume_counting();
void pause_counting();
void end_counting();
// Whether it does, and we were built to tell it (valgrind's header).
bool can_count();
// What was counted since the last dump goes into a file of callgrind's.
void dump_counts(const std::string& title);

// What main() counts by: all benchmarks, so that each can be given a number of iterations, and the
// operations of the one that ran last.
struct Counting {
  std::vector<benchmark::internal::Benchmark*> benchmarks;
  uint64_t operations = 0;
};
Counting& counting();

inline benchmark::internal::Benchmark* counted(benchmark::internal::Benchmark* benchmark) {
  counting().benchmarks.push_back(benchmark);
  return benchmark;
}
// As BENCHMARK(), for functions whose number of instructions does not depend on time or on other
// threads.
#define HOSTNIC_BENCHMARK(function)                                                     \
  [[maybe_unused]] static benchmark::internal::Benchmark* const function##_registered = \
      counted(benchmark::RegisterBenchmark(#function, function))

// All iterations of a benchmark: `for (auto _ : measured(state))` measures nothing but what is in
// the loop. With `in_parts` only the Parts of each iteration count (below).
class Measured {
 public:
  struct [[maybe_unused]] Step {};
  struct End {};
  class Iterator {
   public:
    Iterator(Measured& loop, benchmark::IterationCount left) : loop_(loop), left_(left) {}
    Step operator*() const { return {}; }
    Iterator& operator++() {
      --left_;
      return *this;
    }
    bool operator!=(End) {
      if (left_ != 0) return true;
      loop_.finish();
      return false;
    }

   private:
    Measured& loop_;
    benchmark::IterationCount left_;
  };

  Measured(benchmark::State& state, bool in_parts) : state_(state), in_parts_(in_parts) {}
  // Of a loop that was left early.
  ~Measured() { stop_counting(); }
  Measured(const Measured&) = delete;
  Measured& operator=(const Measured&) = delete;

  Iterator begin() {
    // All of them in one batch: how Google Benchmark counts iterations is none of ours.
    running_ = state_.KeepRunningBatch(state_.max_iterations);
    if (!running_) return {*this, 0};
    counts_ = true;
    begin_counting();
    if (!in_parts_) resume_counting();
    return {*this, state_.max_iterations};
  }
  End end() const { return {}; }

 private:
  void stop_counting() {
    if (!counts_) return;
    counts_ = false;
    if (!in_parts_) pause_counting();
    end_counting();
  }
  void finish() {
    stop_counting();
    if (running_) state_.KeepRunningBatch(1);
    running_ = false;
  }

  benchmark::State& state_;
  bool in_parts_;
  bool running_ = false, counts_ = false;
};
inline Measured measured(benchmark::State& state) { return {state, false}; }

// For benchmarks of which only parts of each iteration are measured: `for (auto _ :
// measured_parts(state))`, a Part around each, and UseManualTime().
inline Measured measured_parts(benchmark::State& state) { return {state, true}; }
class Part {
 public:
  explicit Part(benchmark::State& state) : state_(state), start_(Clock::now()) {
    resume_counting();
  }
  ~Part() {
    pause_counting();
    state_.SetIterationTime(std::chrono::duration<double>(Clock::now() - start_).count());
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  benchmark::State& state_;
  Clock::time_point start_;
};

// `operations` (packets, PSNs, round trips) in all iterations together, `bytes` of payload in them.
inline void report(benchmark::State& state, uint64_t operations, uint64_t bytes = 0) {
  counting().operations = operations;
  state.SetItemsProcessed(static_cast<int64_t>(operations));
  // Shown in seconds with an SI prefix: "85n" is 85 ns.
  state.counters["per_op"] = benchmark::Counter(
      static_cast<double>(operations), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  if (bytes != 0) state.SetBytesProcessed(static_cast<int64_t>(bytes));
}

}  // namespace hostnic::bench
