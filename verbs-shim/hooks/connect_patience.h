// SPDX-License-Identifier: BSD-3-Clause
// How long a refused connect inside a lab is worth repeating: `server & client` on one command line
// must find each other, and nobody else shall notice.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>

namespace hostnic::hooks {

// A program of the same lab that is neither this process, nor above nor below it.
struct LabProgram {
  uint64_t age_ms = 0;  // time since it was forked
  uint64_t cpu_ms = 0;  // processor time that it was given since
  bool runs = false;    // whether it runs, or wants to
};

// The patience of the whole process: what is waited for is counted over all connections and ports.
// For any thread.
class ConnectPatience {
 public:
  static constexpr uint32_t kPauseMs = 20;
  static constexpr uint32_t kPauses = 25;  // half a second
  // A program that had so little of the processor, and wants more, has not come to its listen(): so
  // little, or no more than twice what this process needed to come to its connect(), because
  // debuggers and sanitizers make both slow. The bound is for those that compute long before.
  static constexpr uint64_t kStartCpuMs = 300, kLongestStartCpuMs = 5'000;
  static constexpr uint32_t kStarvedPauses = 750, kIdlePauses = 40;
  static constexpr uint64_t kYoungMs = 3'000, kStarvedMs = 30'000;

  // Whether a port may be a lab program's. Services that no lab starts are left out: topology
  // libraries try all X displays.
  static bool concerns(uint16_t port) { return port >= 1024 && (port < 6000 || port > 6063); }

  // Says after a refusal whether to pause and connect again. `others` are the programs of now,
  // `own_cpu_ms` the processor time that this process has had.
  bool once_more(std::span<const LabProgram> others, uint64_t own_cpu_ms) {
    const uint64_t start_cpu_ms = std::clamp(2 * own_cpu_ms, kStartCpuMs, kLongestStartCpuMs);
    bool young = false, wants_cpu = false, starved = false;
    uint64_t starters_cpu_ms = 0;
    for (const LabProgram& program : others) {
      young |= program.age_ms < kYoungMs;
      const bool starts = program.age_ms < kStarvedMs && program.cpu_ms < start_cpu_ms;
      starved |= starts;
      wants_cpu |= starts && program.runs;
      if (starts) starters_cpu_ms += program.cpu_ms;
    }
    if (young && counted(pauses_, kPauses)) return true;
    // On a busy machine the program may also wait for hostnicd a moment, which is kept waiting
    // itself. One that ran between two looks is no more idle than one that runs at this one.
    wants_cpu |=
        starters_cpu_ms_.exchange(starters_cpu_ms, std::memory_order_relaxed) < starters_cpu_ms;
    if (wants_cpu) idle_pauses_.store(0, std::memory_order_relaxed);
    return starved && counted(idle_pauses_, kIdlePauses) &&
           counted(starved_pauses_, kStarvedPauses);
  }

 private:
  static bool counted(std::atomic<uint32_t>& pauses, uint32_t limit) {
    return pauses.load(std::memory_order_relaxed) < limit &&
           pauses.fetch_add(1, std::memory_order_relaxed) < limit;
  }

  std::atomic<uint32_t> pauses_{0}, idle_pauses_{0}, starved_pauses_{0};
  // Processor time of those that start, at the last look.
  std::atomic<uint64_t> starters_cpu_ms_{0};
};

}  // namespace hostnic::hooks
