// SPDX-License-Identifier: BSD-3-Clause
// Data by one WRITE, and a flag behind it by another one of the same queue pair. The mistake: that
// who sees the flag in memory sees the data. Requests execute in order, but when bytes of WRITEs
// become visible is the device's business until a later message has completed.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "tests/apps/races/lane.h"

namespace hostnic::races {
namespace {

constexpr size_t kRounds = 250, kDataBytes = 2000;  // rounds as far as a byte counts

// Returns whether the data were there when the flag was.
bool send_and_look(Lane& lane, std::span<uint8_t> source, std::span<const uint8_t> target,
                   size_t round, bool fixed) {
  const auto mark = static_cast<uint8_t>(round);
  std::ranges::fill(source, mark);
  lane.write(source.first(kDataBytes), 0, 2 * round);
  lane.write(source.subspan(kDataBytes, 1), kDataBytes, 2 * round + 1,
             fixed ? std::optional<uint32_t>(mark) : std::nullopt);
  if (fixed) {
    while (!lane.arrived()) continue;
  } else {
    const volatile uint8_t& flag = target[kDataBytes];
    while (flag != mark) continue;
  }
  const bool is_there = std::ranges::count(target.first(kDataBytes), mark) == kDataBytes;
  lane.wait_for(2 * round + 1);
  return is_there;
}

}  // namespace

int run_flag(const Options& options) {
  std::vector<uint8_t> source(kDataBytes + 1), target(kDataBytes + 1);
  Lane lane(options, 0, source, target);
  // A fixed program has a receive for each round.
  const size_t rounds = std::min<size_t>(kRounds, options.fixed ? Lane::kReceives : kRounds);
  size_t wrong = 0;
  for (size_t round = 1; round <= rounds; ++round)
    wrong += send_and_look(lane, source, target, round, options.fixed) ? 0 : 1;
  printf("%zu rounds, %zu wrong\n", rounds, wrong);
  if (wrong == 0) return 0;
  fprintf(stderr, "hostnic-races: a flag was there before its data\n");
  return kExitWrong;
}

}  // namespace hostnic::races
