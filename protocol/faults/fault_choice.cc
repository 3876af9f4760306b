// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/faults/fault_choice.h"

#include "protocol/impair/random.h"

namespace hostnic::faults {

using impair::Random;
using impair::TriggerKind;

bool matches(const FaultRule& fault, const FaultOccasion& occasion, const FaultPlace& place) {
  if (fault.subject != occasion.subject) return false;
  if (fault.subject == Subject::kCall && fault.call->name != occasion.call) return false;
  const bool of_event = fault.subject == Subject::kEvent || fault.subject == Subject::kCmEvent;
  if (of_event && fault.event != occasion.event) return false;
  if (fault.qpn && *fault.qpn != occasion.qpn) return false;
  if (fault.qp_ordinal && *fault.qp_ordinal != occasion.qp_ordinal) return false;
  if (fault.cq_ordinal != 0 && fault.cq_ordinal != occasion.cq_ordinal) return false;
  if (fault.srq_ordinal != 0 && fault.srq_ordinal != occasion.srq_ordinal) return false;
  if (!fault.device.empty() && fault.device != occasion.device) return false;
  if (!fault.program.empty() && fault.program != place.program) return false;
  if (fault.rank && fault.rank != place.rank) return false;
  if (fault.has_over && occasion.size <= fault.over) return false;
  if (occasion.size >= fault.under) return false;
  if (fault.state && *fault.state != occasion.state) return false;
  if (fault.opcode && *fault.opcode != occasion.opcode) return false;
  return occasion.now_ns >= fault.after_ns && occasion.now_ns < fault.until_ns;
}

bool hits(const FaultRule& fault, uint64_t number, uint64_t stream) {
  switch (fault.trigger.kind) {
    case TriggerKind::kUniform:
      return Random(stream + Random::mix(number)).chance(fault.trigger.probability_ppb);
    case TriggerKind::kNth:
      return number == fault.trigger.count;
    case TriggerKind::kEvery:
      return number % fault.trigger.count == 0;
    case TriggerKind::kFirst:
      return number <= fault.trigger.count;
    default:
      return true;
  }
}

uint64_t stream_of(uint64_t seed, uint32_t process, std::string_view rule, size_t same_before) {
  uint64_t name = same_before;
  for (const char letter : rule) name = Random::mix(name + static_cast<unsigned char>(letter));
  return Random::mix(Random::mix(seed + process) + name);
}

}  // namespace hostnic::faults
