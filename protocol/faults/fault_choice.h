// SPDX-License-Identifier: BSD-3-Clause
// Whether a rule is about something that happens, and which of those it hits.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "protocol/faults/fault_spec.h"

namespace hostnic::faults {

// The process in which it happens.
struct FaultPlace {
  std::string_view program;
  std::optional<uint32_t> rank;
};

// Something that happens: a call that is about to be made, or what a queue is about to deliver.
struct FaultOccasion {
  Subject subject = Subject::kCall;
  std::string_view call;  // kCall: its name without "ibv_"
  int event = 0;          // kEvent, kCmEvent
  std::string_view device;
  uint32_t qpn = 0, qp_ordinal = 0, cq_ordinal = 0, srq_ordinal = 0;  // 0: of none
  uint64_t size = 0;
  int state = -1, opcode = -1;
  uint64_t now_ns = 0;  // since the process opened its first device
};

bool matches(const FaultRule& fault, const FaultOccasion& occasion, const FaultPlace& place);

// Whether the `number`-th (from 1) of those that match is hit. The same stream, rule by rule and
// process by process, has the same answers.
bool hits(const FaultRule& fault, uint64_t number, uint64_t stream);
// The stream of a rule in the `process`-th process: its rank, or the order of its start. By the
// rule's canonical text, and how many in front of it have the same one, so that a rule that is left
// out changes nothing for others.
uint64_t stream_of(uint64_t seed, uint32_t process, std::string_view rule, size_t same_before);

}  // namespace hostnic::faults
