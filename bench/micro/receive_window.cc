// SPDX-License-Identifier: BSD-3-Clause
// The receive bitmap: what each packet costs it, in order and not, and what an ACK takes from it.
#include "protocol/transport/receive_window.h"

#include "bench/micro/report.h"

namespace hostnic::bench {
namespace {

constexpr uint32_t kWindow = 1024;

void window_in_order(benchmark::State& state) {
  ReceiveWindow window;
  window.reset(Psn(0), kWindow);
  Psn psn;
  for (auto _ : measured(state)) {
    if (window.classify(psn) != ReceiveWindow::Place::kExpected) {
      state.SkipWithError("the next PSN is not at the front");
      return;
    }
    window.accept_in_order();
    psn += 1;
    benchmark::DoNotOptimize(window.expected());
  }
  report(state, state.iterations());
}
HOSTNIC_BENCHMARK(window_in_order);

// All but the first of `range` PSNs arrive, then the first: the window advances over all of them.
void window_hole_and_advance(benchmark::State& state) {
  const auto count = static_cast<uint32_t>(state.range(0));
  ReceiveWindow window;
  window.reset(Psn(0), kWindow);
  for (auto _ : measured(state)) {
    const Psn first = window.expected();
    for (uint32_t i = 1; i < count; ++i) {
      if (window.classify(first + i) == ReceiveWindow::Place::kAhead) window.set(first + i);
    }
    window.accept_in_order();
    while (window.expected_received()) window.advance();
    if (window.expected() != first + count) {
      state.SkipWithError("the window did not advance over what had arrived");
      return;
    }
  }
  report(state, state.iterations() * count);
}
HOSTNIC_BENCHMARK(window_hole_and_advance)->Arg(2)->Arg(64)->Arg(1024);

// The bitmap of an ACK when every second of `range` PSNs is missing.
void window_sack_words(benchmark::State& state) {
  const auto span = static_cast<uint32_t>(state.range(0));
  ReceiveWindow window;
  window.reset(Psn(7), kWindowLimit);  // not a multiple of 64
  for (uint32_t i = 1; i < span; i += 2) window.set(Psn(7) + i);
  std::array<uint64_t, kBitmapWords> words{};
  for (auto _ : measured(state)) {
    if (window.sack_words(words) != span / 64) {
      state.SkipWithError("the bitmap has another size than its span");
      return;
    }
    benchmark::DoNotOptimize(words);
  }
  report(state, state.iterations(), state.iterations() * span / 8);
}
HOSTNIC_BENCHMARK(window_sack_words)->Arg(64)->Arg(1024)->Arg(4096);

}  // namespace
}  // namespace hostnic::bench
