// SPDX-License-Identifier: BSD-3-Clause
// Where in the program a call is made, without what lies between: librdmacm, libibverbs, ourselves.
#pragma once

#include <cstdint>

#include "protocol/hostif/check_board.h"

namespace hostnic::check {

// The call that this thread is in.
struct Entry {
  const char* verb = "";
  const void* caller = nullptr;     // where it returns to
  const void* cm_caller = nullptr;  // where the last call of librdmacm returns to
};
[[gnu::tls_model("initial-exec")]] extern thread_local Entry entry;

inline const char* current_verb() { return entry.verb; }
// This thread's number.
int own_tid();
// A forked child's thread has another one.
void forget_tid();

// Where the program has made this call, or the one of librdmacm that makes it. Looks it up: for
// calls that are slow anyway; posts take entry.caller.
const void* call_place();

struct Stack {
  uint32_t count = 0;
  const void* address[CheckRecord::kMostPlaces] = {};  // that the calls return to
};
// The program's frames of this thread, from the call outwards.
Stack stack_of_program();
// Puts an address into words. A null one has no file.
void describe(const void* address, CheckPlace& place);
// Whether it is code of the program itself, not of a library.
bool is_in_executable(const void* address);
// Whether the program has a library that registers memory on ways that are not seen here.
bool has_unseen_keys();

}  // namespace hostnic::check
