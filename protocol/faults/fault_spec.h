// SPDX-License-Identifier: BSD-3-Clause
// Which calls, completions and events of verbs are to fail or to be late, and the text that says
// it. The words are those of impairments (protocol/impair/spec.h) as far as both have them.
//
//   faults  = [ "none" | fault { ";" fault } [ ";" ] ]
//   fault   = [ "fault" ] ( CALL | "post" | "wc" | "event" EVENT | "cm" CM-EVENT ) { clause }
//   clause  = PERCENT | "all" | ( "nth" | "every" | "first" ) N     -- which of those that match
//           | "qp" ( N | "#" N )          -- by number, or the N-th that the process created
//           | "device" NAME | "program" NAME | "rank" N
//           | "over" SIZE | "under" SIZE  -- bytes of a registration or message, entries of a queue
//           | "to" STATE                  -- modify_qp
//           | "opcode" OPCODE           -- post, wc
//           | "cq" "#" N | "srq" "#" N  -- wc, event; the N-th queue that the process created
//           | "after" TIME | "until" TIME -- since the process opened its first device
//           | "errno" ( NAME | N )        -- the call fails so, and is not made
//           | "delay" TIME                -- the call, request, completion, or event, is late
//           | "behind" ( NAME | "#" N )   -- wc: not before that device, or queue, delivers one
//           | "status" STATUS | "vendor" N  -- wc
//           | "as" CM-EVENT | "reason" N  -- cm: another event, with this status
//           | "for" TIME                  -- event PORT_ERR: PORT_ACTIVE follows then
//   SIZE    = number [ K | M | G ]        -- powers of 1024
//
// Meaning. Rules apply in the order written. Each process counts for itself. The first rule that
// hits with errno, status or `as` decides; delays of all that hit add up.
//  - post: the call returns at once, and the device gets the request, and what is posted behind it
//    in its queue pair, so much later. Not of UD.
//  - wc: a completion with success becomes one with this status. As on an adapter the queue pair is
//    in ERR then, and what it had posted behind it is flushed.
//  - wc, delay and behind: what stands behind it in its queue waits as well. `behind` ends after
//    `delay`, or after 100 ms, if nothing is delivered there.
//  - event: comes at the time `after`, once for each device that is open.
//  - event, delay: the device's own event is late, and what stands behind it waits as well.
//  - qp, srq, cq, for an event that is made: default #1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/expected.h"
#include "protocol/faults/fault_words.h"
#include "protocol/impair/spec.h"

namespace hostnic::faults {

inline constexpr size_t kMaxFaults = 16;
inline constexpr size_t kMaxNameBytes = 63;
// No rule's canonical text is longer.
inline constexpr size_t kMaxFaultBytes = 511;

enum class Subject : uint8_t { kCall, kPost, kCompletion, kEvent, kCmEvent };

struct FaultRule {
  Subject subject = Subject::kCall;
  const FaultCall* call = nullptr;  // kCall
  int event = 0;                    // kEvent, kCmEvent
  impair::Trigger trigger;          // kAlways, kUniform, kNth, kEvery, kFirst
  std::optional<uint32_t> qpn, qp_ordinal, rank;
  std::string device, program;  // empty: any
  uint64_t over = 0, under = UINT64_MAX;
  bool has_over = false;
  std::optional<int> state, opcode;
  uint32_t cq_ordinal = 0, srq_ordinal = 0;  // 0: any
  uint64_t after_ns = 0, until_ns = UINT64_MAX;
  // What happens.
  int error = 0;  // errno's
  uint64_t delay_ns = 0;
  std::string behind_device;  // a completion waits for one there; empty: for none
  uint32_t behind_cq = 0;     // or of that queue; 0: of none
  int status = 0;             // a completion's; 0: as it is
  uint32_t vendor = 0;
  std::optional<int> becomes;  // a CM event
  int reason = 0;
  uint64_t for_ns = 0;
  bool operator==(const FaultRule&) const = default;

  // Whether it makes an event, rather than delays one.
  bool makes_event() const { return subject == Subject::kEvent && delay_ns == 0; }
  bool is_behind() const { return !behind_device.empty() || behind_cq != 0; }
  // Whether it decides what comes of whatever matches it, and all of its subject does.
  bool takes_all() const;
};

// Parses a text; an empty one has no rules. A rule that can never fire is an error. Throws nothing
// but for lack of memory.
Expected<std::vector<FaultRule>, impair::SpecError> parse_faults(std::string_view text);

// The canonical text, which parses to an equal rule.
std::string to_string(const FaultRule& fault);

// All names that rules may have, as docs/faults.md has them.
std::string fault_tables();

// A few lines for --help.
std::string_view fault_help();

}  // namespace hostnic::faults
