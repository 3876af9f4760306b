// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/time_histogram.h"

#include <algorithm>
#include <bit>

namespace hostnic::cli {
namespace {

constexpr uint64_t kShortestStepNs = 64;

}  // namespace

void TimeHistogram::add(uint64_t ns) {
  ++count_;
  max_ns_ = std::max(max_ns_, ns);
  size_t step = 0;
  if (ns >= kShortestStepNs) {
    const auto doublings = static_cast<size_t>(std::bit_width(ns / kShortestStepNs)) - 1;
    step = doublings * 4 + (ns >> (doublings + 4) & 3);
  }
  ++steps_[std::min(step, kSteps - 1)];
}

uint64_t TimeHistogram::lower_ns(size_t step) {
  return (kShortestStepNs + step % 4 * (kShortestStepNs / 4)) << (step / 4);
}

uint64_t TimeHistogram::at_permille(uint32_t permille) const {
  uint64_t before = 0;
  for (size_t step = 0; step < kSteps; ++step) {
    before += steps_[step];
    if (before != 0 && before * 1000 >= count_ * permille) return lower_ns(step);
  }
  return 0;
}

}  // namespace hostnic::cli
