// SPDX-License-Identifier: BSD-3-Clause
// Findings on their way to `hostnic check`: each once in a process, by its kind and places.
#pragma once

#include <cstdint>

#include "protocol/hostif/check_board.h"

namespace hostnic::check {

inline constexpr uint32_t kNoRecord = UINT32_MAX;

// Another place of the program that a finding is about; null: none is known.
struct OtherPlace {
  const char* word = "";  // what was done there, such as "posted"
  const void* address = nullptr;
};

// Reports a mistake that this thread's call makes. Any locks but those of queues may be held.
[[gnu::format(printf, 3, 4)]] void report(CheckKind kind, const OtherPlace& other,
                                          const char* format, ...);
// Reports what is a mistake if it lasts. Returns the record, for withdraw(), or kNoRecord.
[[gnu::format(printf, 3, 4)]] uint32_t report_for_now(CheckKind kind, const OtherPlace& other,
                                                      const char* format, ...);
void withdraw(uint32_t record);

// What the run asks for besides.
bool is_strict();
bool is_full();

// The process begins again, as a forked child.
void begin_reports_in_child();
// Counts this process among those that made calls, once.
void count_process();

}  // namespace hostnic::check
