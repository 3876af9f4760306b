// SPDX-License-Identifier: BSD-3-Clause
// Why a request fails, as its completion says.
#pragma once

#include <cstdint>

#include "protocol/hostif/segment.h"
#include "verbs-shim/driver/types.h"

namespace hostnic::driver {

struct Cause {
  WcStatus status;
  VendorError vendor;
};

// The cause for what the own NIC says of this side's memory, or of a READ's answers.
inline Cause cause_of_local_error(uint32_t error) {
  switch (LocalError{error}) {
    case LocalError::kLength:
      return {WcStatus::kLocLenErr, VendorError::kLocalLength};
    case LocalError::kBadResponse:
      return {WcStatus::kBadRespErr, VendorError::kBadResponse};
    default:
      return {WcStatus::kLocProtErr, VendorError::kLocalKey};
  }
}

}  // namespace hostnic::driver
