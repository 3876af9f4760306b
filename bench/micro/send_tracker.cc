// SPDX-License-Identifier: BSD-3-Clause
// The sender's tracker: sending, ACKs, loss detection.
#include "protocol/transport/send_tracker.h"

#include "bench/micro/report.h"

namespace hostnic::bench {
namespace {

constexpr uint32_t kWindow = 1024;
constexpr uint64_t kRttNs = 10'000;

// `range` PSNs leave and one ACK without holes answers them.
void tracker_clean(benchmark::State& state) {
  const auto count = static_cast<uint32_t>(state.range(0));
  SendTracker tracker;
  tracker.reset(Psn(0), kWindow);
  const PsnBits nothing;
  TimeNs now_ns = 1;
  for (auto _ : measured(state)) {
    tracker.on_first_send(count, now_ns);
    now_ns += kRttNs;
    if (tracker.on_ack(tracker.next(), nothing) != count || tracker.in_flight() != 0) {
      state.SkipWithError("not everything became acknowledged");
      return;
    }
    benchmark::DoNotOptimize(tracker.detect_losses(now_ns, kRttNs));
  }
  report(state, state.iterations() * count);
}
HOSTNIC_BENCHMARK(tracker_clean)->Arg(1)->Arg(16)->Arg(64);

// `range` PSNs leave, all but the first arrive, the first is found lost and sent again.
void tracker_loss(benchmark::State& state) {
  const auto count = static_cast<uint32_t>(state.range(0));
  SendTracker tracker;
  tracker.reset(Psn(0), kWindow);
  PsnBits bits;
  TimeNs now_ns = 1;
  for (auto _ : measured(state)) {
    const Psn base = tracker.next();
    tracker.on_first_send(count, now_ns);
    for (uint32_t i = 1; i < count; ++i) bits.set(base + i);
    now_ns += kRttNs;
    tracker.on_ack(base, bits);
    const uint32_t lost = tracker.detect_losses(now_ns, kRttNs);
    Psn first;
    uint32_t run = 0;
    if (lost != 1 || !tracker.next_lost_run(base, count, first, run) || first != base || run != 1) {
      state.SkipWithError("the lost PSN was not found");
      return;
    }
    tracker.on_resend(first, run, now_ns);
    now_ns += kRttNs;
    bits.reset();
    tracker.on_ack(tracker.next(), bits);
  }
  report(state, state.iterations() * count);
}
HOSTNIC_BENCHMARK(tracker_loss)->Arg(16)->Arg(64)->Arg(1024);

}  // namespace
}  // namespace hostnic::bench
