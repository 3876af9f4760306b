// SPDX-License-Identifier: BSD-3-Clause
// What a NIC meets whose `ordering` is adversarial (docs/ordering.md): packets that overtake each
// other at random, by the seed, and acknowledgements that come twice. Networks and adapters may do
// all of it, and what comes of it is for the transport to decide.
#pragma once

#include <cstdint>

#include "protocol/impair/spec.h"

namespace hostnic::impair {

// The rules for packets that a NIC receives, behind those that its user asks for.
Spec adversary_rules();

// What the NIC itself draws from; never 0.
uint64_t adversary_seed(uint64_t seed, uint32_t nic_index);

}  // namespace hostnic::impair
