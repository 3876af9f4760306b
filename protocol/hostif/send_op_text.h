// SPDX-License-Identifier: BSD-3-Clause
// What operations are called when people are told of them, by the library and by hostnicd.
#pragma once

#include "protocol/hostif/descriptors.h"

namespace hostnic {

// "SEND with immediate"; "request" for values outside the enumeration.
constexpr const char* text_of(SendOp op) {
  switch (op) {
    case SendOp::kWrite:
      return "WRITE";
    case SendOp::kWriteImm:
      return "WRITE with immediate";
    case SendOp::kSend:
      return "SEND";
    case SendOp::kSendImm:
      return "SEND with immediate";
    case SendOp::kSendInv:
      return "SEND with invalidation";
    case SendOp::kRead:
      return "READ";
    case SendOp::kCompareSwap:
      return "compare-and-swap";
    case SendOp::kFetchAdd:
      return "fetch-and-add";
    case SendOp::kBindWindow:
      return "bind";
    case SendOp::kLocalInvalidate:
      return "invalidation";
    default:
      return "request";
  }
}

}  // namespace hostnic
