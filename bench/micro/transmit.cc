// SPDX-License-Identifier: BSD-3-Clause
// Packetiser: send descriptors of a client's ring become packets on a port, through the whole
// transmit path of a NIC. The port frees them, which is part of the cost.
#include "bench/micro/nic_bench.h"
#include "bench/micro/report.h"

namespace hostnic::bench {
namespace {

constexpr size_t kMemoryBytes = 1 << 20;
constexpr uint32_t kMessagesPerTurn = 8;
constexpr uint32_t kMaxTurns = 1000;

void run(benchmark::State& state, bool with_icrc) {
  const auto message_bytes = static_cast<uint32_t>(state.range(0));
  const uint32_t packets_per_message = (message_bytes + kMtuBytes - 1) / kMtuBytes;
  const Buffer memory(kMemoryBytes, 1);
  NullPort port;
  NicBench nic(port, memory, {.index = 0, .with_icrc = with_icrc});
  nic.connect(1, std::array{0x10010u}, kMtuBytes);
  Psn psn;
  uint64_t at = 0, expected = port.transmitted();
  for (auto _ : measured(state)) {
    for (uint32_t i = 0; i < kMessagesPerTurn; ++i) {
      if (!nic.post({{nic.make_write(psn, at, message_bytes, memory.address(), nic.key())}})) {
        state.SkipWithError("the send ring is full");
        return;
      }
      psn += packets_per_message;
      at = (at + message_bytes) % kMemoryBytes;
    }
    expected += kMessagesPerTurn * packets_per_message;
    uint32_t turns = 0;
    while (port.transmitted() < expected && ++turns < kMaxTurns) nic.poll();
    if (port.transmitted() != expected) {
      state.SkipWithError("other packets left than the descriptors say");
      return;
    }
  }
  const uint64_t messages = state.iterations() * kMessagesPerTurn;
  report(state, messages * packets_per_message, messages * message_bytes);
}

// As on the in-process wire: the payload rides along without a copy.
void packetiser_wire(benchmark::State& state) { run(state, false); }
// As on Ethernet: the payload is copied behind the headers, and the ICRC made.
void packetiser_icrc(benchmark::State& state) { run(state, true); }
HOSTNIC_BENCHMARK(packetiser_wire)->Arg(64)->Arg(4096)->Arg(65536);
HOSTNIC_BENCHMARK(packetiser_icrc)->Arg(64)->Arg(4096)->Arg(65536);

}  // namespace
}  // namespace hostnic::bench
