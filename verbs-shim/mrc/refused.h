// SPDX-License-Identifier: BSD-3-Clause
// How calls of libmrc.so fail: with errno, and a line that names the call and says what to do
// instead, where people read lines (base/explanation.h).
#pragma once

#include <cerrno>
#include <cstdint>

#include "verbs-shim/mrc/objects.h"

namespace hostnic::libmrc {

// Says why, in printf's formats. Sets errno, and returns it.
[[gnu::format(printf, 3, 4)]] int refused(const char* call, int error, const char* format, ...);

// It says the same way that a pointer is no live object of a kind. Returns EINVAL.
int no_object(const char* call, Kind kind);

// As calls return that have -1, or a null pointer, for a failure; 0 is none.
inline int minus_one(int error) {
  if (error == 0) return 0;
  errno = error;
  return -1;
}
inline std::nullptr_t no_pointer(int error) {
  errno = error;
  return nullptr;
}

}  // namespace hostnic::libmrc
