// SPDX-License-Identifier: BSD-3-Clause
// What goes wrong between a program and its devices, for people and for verbs.
#pragma once

#include <string>
#include <utility>

#include "protocol/expected.h"

namespace hostnic::runtime {

// An errno value, and one line that names the thing and the remedy.
struct ContextError {
  int error = 0;
  std::string message;
};
inline Unexpected<ContextError> failure(int error, std::string message) {
  return Unexpected(ContextError{error, std::move(message)});
}

}  // namespace hostnic::runtime
