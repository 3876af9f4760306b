// SPDX-License-Identifier: BSD-3-Clause
// The ICRC of whole packets, by each of DPDK's CRC algorithms that this CPU runs, and by the
// portable reference.
#include "protocol/wire/icrc.h"

#include <rte_cpuflags.h>
#include <rte_net_crc.h>

#include <vector>

#include "bench/micro/report.h"

namespace hostnic::bench {

namespace {

// rte_net_crc_set_alg() silently takes a lesser algorithm where one can't run: hence this. main()
// lets DPDK use vectors of any width.
bool available(rte_net_crc_alg algorithm) {
  switch (algorithm) {
    case RTE_NET_CRC_SCALAR:
      return true;
#if defined(RTE_ARCH_X86)
    case RTE_NET_CRC_SSE42:
      return rte_cpu_get_flag_enabled(RTE_CPUFLAG_PCLMULQDQ) == 1;
    case RTE_NET_CRC_AVX512:
      return rte_cpu_get_flag_enabled(RTE_CPUFLAG_AVX512F) == 1 &&
             rte_cpu_get_flag_enabled(RTE_CPUFLAG_AVX512BW) == 1 &&
             rte_cpu_get_flag_enabled(RTE_CPUFLAG_AVX512VL) == 1 &&
             rte_cpu_get_flag_enabled(RTE_CPUFLAG_PCLMULQDQ) == 1 &&
             rte_cpu_get_flag_enabled(RTE_CPUFLAG_VPCLMULQDQ) == 1;
#elif defined(RTE_ARCH_ARM64)
    case RTE_NET_CRC_NEON:
      return rte_cpu_get_flag_enabled(RTE_CPUFLAG_PMULL) == 1;
#endif
    default:
      return false;
  }
}

// What the other benchmarks, and hostnicd, run with. Each takes the best below it where it can't
// run.
void choose_best() {
#if defined(RTE_ARCH_ARM64)
  rte_net_crc_set_alg(RTE_NET_CRC_NEON);
#else
  rte_net_crc_set_alg(RTE_NET_CRC_AVX512);
#endif
}

uint32_t dpdk_crc(const std::byte* data, size_t bytes) {
  return rte_net_crc_calc(data, static_cast<uint32_t>(bytes), RTE_NET_CRC32_ETH);
}

// A packet from the IP header on, with room for the ICRC's prefix before it.
struct Sample {
  explicit Sample(size_t payload_bytes)
      : bytes(wire::kIcrcMaskedBytes + wire::kRethBytes + payload_bytes),
        storage(wire::kIcrcPrefixBytes + bytes) {
    for (size_t i = 0; i < storage.size(); ++i) storage[i] = static_cast<std::byte>(i * 7);
  }
  std::byte* ip() { return storage.data() + wire::kIcrcPrefixBytes; }
  size_t bytes;
  std::vector<std::byte> storage;
};

void icrc_dpdk(benchmark::State& state, rte_net_crc_alg algorithm) {
  const auto payload_bytes = static_cast<size_t>(state.range(0));
  Sample sample(payload_bytes);
  rte_net_crc_set_alg(algorithm);
  const uint32_t expected = wire::icrc_reference({sample.ip(), sample.bytes});
  for (auto _ : measured(state))
    benchmark::DoNotOptimize(wire::icrc_in_place(sample.ip(), sample.bytes, dpdk_crc));
  // Computed anew: DoNotOptimize() may change a variable that it is given (g++, constraint "+m,r").
  if (wire::icrc_in_place(sample.ip(), sample.bytes, dpdk_crc) != expected)
    state.SkipWithError("the ICRC differs from the reference");
  report(state, state.iterations(), state.iterations() * payload_bytes);
  choose_best();
}

void icrc_reference(benchmark::State& state) {
  const auto payload_bytes = static_cast<size_t>(state.range(0));
  Sample sample(payload_bytes);
  for (auto _ : measured(state))
    benchmark::DoNotOptimize(wire::icrc_reference({sample.ip(), sample.bytes}));
  report(state, state.iterations(), state.iterations() * payload_bytes);
}
HOSTNIC_BENCHMARK(icrc_reference)->RangeMultiplier(4)->Range(64, 4096);

void icrc_scalar(benchmark::State& state) { icrc_dpdk(state, RTE_NET_CRC_SCALAR); }
HOSTNIC_BENCHMARK(icrc_scalar)->RangeMultiplier(4)->Range(64, 4096);

// What a CPU does not have is reported as skipped, not as a failure.
void icrc_if_available(benchmark::State& state, rte_net_crc_alg algorithm) {
  if (available(algorithm)) {
    icrc_dpdk(state, algorithm);
    return;
  }
  state.SetLabel("not on this CPU");
  for (auto _ : measured(state)) {
  }
}
#if defined(RTE_ARCH_X86)
void icrc_sse42(benchmark::State& state) { icrc_if_available(state, RTE_NET_CRC_SSE42); }
HOSTNIC_BENCHMARK(icrc_sse42)->RangeMultiplier(4)->Range(64, 4096);
void icrc_avx512(benchmark::State& state) { icrc_if_available(state, RTE_NET_CRC_AVX512); }
HOSTNIC_BENCHMARK(icrc_avx512)->RangeMultiplier(4)->Range(64, 4096);
#elif defined(RTE_ARCH_ARM64)
void icrc_neon(benchmark::State& state) { icrc_if_available(state, RTE_NET_CRC_NEON); }
HOSTNIC_BENCHMARK(icrc_neon)->RangeMultiplier(4)->Range(64, 4096);
#endif

}  // namespace
}  // namespace hostnic::bench
