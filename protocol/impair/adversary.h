// SPDX-License-Identifier: BSD-3-Clause
// What a NIC meets whose `ordering` is adversarial (docs/ordering.md): packets that overtake each
// other at random, by the seed, and acknowledgements that come twice. Networks and adapters may do
// all of it, and what comes of it is for the transport to decide.
#pragma once

#include <cstdint>

#include "protocol/impair/spec.h"
#include "protocol/types.h"

namespace hostnic::impair {

// The rules for packets that a NIC receives, behind those that its user asks for.
Spec adversary_rules();

// What the NIC itself draws from; never 0.
uint64_t adversary_seed(uint64_t seed, uint32_t nic_index);
// What the drivers draw from that use a NIC with that seed; 0 if that is 0.
uint32_t program_seed(uint64_t nic_seed);

// What is decided by drawing.
enum class AdversaryDraw : uint8_t { kNoReceive, kUnseenWrite, kSplitAtomic, kLateReport };

// Draws about something that has a name, e.g. a packet: nothing with probability 1 - 1 / `one_in`,
// else a time from 1 to `most_ns`, short ones far more often than long ones. Equal arguments draw
// equally.
TimeNs draw(uint64_t seed, AdversaryDraw about, uint64_t name, uint32_t one_in, TimeNs most_ns);

}  // namespace hostnic::impair
