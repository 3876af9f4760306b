// SPDX-License-Identifier: BSD-3-Clause
// Why packets are sent again: the one list of causes. The driver decides and says which in each
// descriptor, the NIC counts, and whoever tells people of it has names and help from here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hostnic {

// X(name, help), with `prefix` in front of each name.
#define HOSTNIC_REPEAT_CAUSES(X, prefix)                                     \
  X(prefix##gap, "the peer had received what was sent later")                \
  X(prefix##nak, "the peer said that a packet was missing (transport roce)") \
  X(prefix##rnr, "the peer had no receive posted")                           \
  X(prefix##probe, "nothing was heard for about two round trips")            \
  X(prefix##timeout, "nothing was heard for the retransmission timeout")     \
  X(prefix##anew, "answers to READs that the peer could not give again in order")

enum class RepeatCause : uint8_t {
  kNone,  // not sent again
#define HOSTNIC_REPEAT_CAUSE_ENUM(name, help) name,
  HOSTNIC_REPEAT_CAUSES(HOSTNIC_REPEAT_CAUSE_ENUM, )
#undef HOSTNIC_REPEAT_CAUSE_ENUM
      kEnd
};
// The number of causes, kNone aside: they are 1 to so many.
inline constexpr size_t kRepeatCauses = static_cast<size_t>(RepeatCause::kEnd) - 1;

constexpr const char* name_of(RepeatCause cause) {
  constexpr const char* kNames[] = {"none",
#define HOSTNIC_REPEAT_CAUSE_NAME(name, help) #name,
                                    HOSTNIC_REPEAT_CAUSES(HOSTNIC_REPEAT_CAUSE_NAME, )
#undef HOSTNIC_REPEAT_CAUSE_NAME
  };
  return cause < RepeatCause::kEnd ? kNames[static_cast<size_t>(cause)] : "?";
}
constexpr const char* help_of(RepeatCause cause) {
  constexpr const char* kHelps[] = {"",
#define HOSTNIC_REPEAT_CAUSE_HELP(name, help) help,
                                    HOSTNIC_REPEAT_CAUSES(HOSTNIC_REPEAT_CAUSE_HELP, )
#undef HOSTNIC_REPEAT_CAUSE_HELP
  };
  return cause < RepeatCause::kEnd ? kHelps[static_cast<size_t>(cause)] : "?";
}

// A descriptor's byte for the attempt has the cause behind the attempt's two bits.
inline constexpr uint32_t kCauseShift = 4;
constexpr uint8_t attempt_with(uint8_t attempt, RepeatCause cause) {
  return static_cast<uint8_t>(attempt | static_cast<uint8_t>(cause) << kCauseShift);
}
// What is no cause counts as a timeout: a client may write what it wants.
constexpr RepeatCause cause_in(uint8_t attempt) {
  const auto cause = static_cast<RepeatCause>(attempt >> kCauseShift);
  return cause == RepeatCause::kNone || cause >= RepeatCause::kEnd ? RepeatCause::timeout : cause;
}

}  // namespace hostnic
