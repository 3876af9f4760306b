// What every benchmark reports: nanoseconds per operation and bytes per second.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>

namespace hostnic::bench {

// `operations` (packets, PSNs, round trips) in all iterations together, `bytes` of payload in them.
inline void report(benchmark::State& state, uint64_t operations, uint64_t bytes = 0) {
  state.SetItemsProcessed(static_cast<int64_t>(operations));
  // Shown in seconds with an SI prefix: "85n" is 85 ns.
  state.counters["per_op"] = benchmark::Counter(
      static_cast<double>(operations), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  if (bytes != 0) state.SetBytesProcessed(static_cast<int64_t>(bytes));
}

}  // namespace hostnic::bench
