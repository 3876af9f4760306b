// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/impair/adversary.h"

#include <algorithm>

#include "protocol/impair/random.h"

namespace hostnic::impair {

// Most packets that are late are so by a few others, which a program notices only if it looks at
// memory at once; the rare ones by as long as it may take between two deeds of its own.
Spec adversary_rules() {
  return *parse_spec(
      "rx reorder 30% delay 1us jitter 10us exponential;"
      "reorder 2% delay 50us jitter 200us exponential;"
      "duplicate 5% kind ack");
}

uint64_t adversary_seed(uint64_t seed, uint32_t nic_index) {
  constexpr uint64_t kStream = 0x0adea11e;
  return Random::mix(Random::mix(seed + kStream) + nic_index) | 1;
}

uint32_t program_seed(uint64_t nic_seed) {
  return nic_seed == 0 ? 0 : static_cast<uint32_t>(Random::mix(nic_seed)) | 1;
}

// A program that looks at once sees what is late by a few turns; one that does something first,
// what is late by as long as that takes.
TimeNs draw(uint64_t seed, AdversaryDraw about, uint64_t name, uint32_t one_in, TimeNs most_ns) {
  constexpr uint64_t kShortOnes = 16, kLongOneIn = 8;
  Random random(Random::mix(seed + static_cast<uint64_t>(about)) ^ Random::mix(name));
  if (random.below(one_in) != 0) return 0;
  const TimeNs most = random.below(kLongOneIn) == 0 ? most_ns : most_ns / kShortOnes;
  return 1 + random.below(std::max<TimeNs>(most, 1));
}

}  // namespace hostnic::impair
