// SPDX-License-Identifier: BSD-3-Clause
// What the calls that libibverbs has as symbols tell alike.
#pragma once

#include "verbs-shim/calls/call.h"

// Adds to a call's text, where somebody reads it.
#define HOSTNIC_ARGUMENTS(call, ...) \
  if ((call).on()) (call).text().add(__VA_ARGS__)

namespace hostnic::calls {

// For a format's %p.
inline const void* address(const void* pointer) { return pointer; }

// A result with a text of its own where it is good.
template <typename Tell>
int ends_telling(Call& call, int result, Tell tell) {
  if (result != 0 || !call.on()) return call.ends(result);
  call.begin_result();
  call.text().add("0");
  tell(call.text());
  call.finish(TraceOutcome::kSuccess);
  return 0;
}

}  // namespace hostnic::calls
