// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/impair/adversary.h"

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

}  // namespace hostnic::impair
