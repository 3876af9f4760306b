// SPDX-License-Identifier: BSD-3-Clause
// Decides what is to go wrong in this process, by the rules of the board that it was started with.
// Where there is none, is_on() is false and nothing else is called.
//
// For any thread and in forked children, which count for themselves.
#pragma once

#include <cstdint>

#include "protocol/faults/fault_choice.h"

namespace hostnic::faults {

bool is_on();
// Whether some rule is of that kind.
bool has_rules_of(Subject subject);

// Whether some rule holds completions back.
bool has_late_completions();

struct Decision {
  const FaultRule* taken = nullptr;   // the rule that decides what comes of it; null: none does
  uint64_t delay_ns = 0;              // of all rules that hit
  const FaultRule* behind = nullptr;  // the first that has a completion wait for another
};

// Counts the occasion and says once, on stderr, for each of the first few times that a rule fires.
// The time of the occasion need not be set.
Decision decide(FaultOccasion& occasion);

// The rules that make events, one by one, as far as they are for this process and device; null: no
// more.
// `index` is where to look from, and is moved on.
const FaultRule* next_event_rule(size_t& index, std::string_view device);
// Whether some rule has the device's own events come late.
bool has_late_events(std::string_view device);
// Counts an event that its rule has made.
void count_event(const FaultRule& fault);

// Begins the time that `after` and `until` count, if it has not begun.
void begin_time();

// Waits. It is no cancellation point.
void wait_ns(uint64_t duration_ns);

}  // namespace hostnic::faults
