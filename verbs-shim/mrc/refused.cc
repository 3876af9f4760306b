// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/mrc/refused.h"

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "verbs-shim/base/explanation.h"

namespace hostnic::libmrc {

int refused(const char* call, int error, const char* format, ...) {
  if (explanations_wanted()) {
    std::array<char, 512> why{};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why.data(), why.size(), format, arguments);
    va_end(arguments);
    const char* const name = strerrorname_np(error);
    explain("%s: %s (%s)", call, why.data(), name == nullptr ? "error" : name);
  }
  errno = error;
  return error;
}

int no_object(const char* call, Kind kind) {
  constexpr const char* kNames[] = {"context", "completion channel", "completion queue",
                                    "queue pair", "QP hint"};
  return refused(call, EINVAL, "that is no %s of libmrc, or it is destroyed",
                 kNames[static_cast<size_t>(kind)]);
}

}  // namespace hostnic::libmrc
