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

// The kinds of NAK in AETH, as the status carries them (protocol/wire/aeth.h).
inline constexpr uint32_t kNakKindRnr = 1;
// The value of rnr_retry that says: for ever.
inline constexpr uint32_t kInfiniteRnrRetry = 7;

// The cause for a NAK that ends the connection.
inline Cause cause_of_nak(uint32_t code) {
  switch (code) {
    case 2:
      return {WcStatus::kRemAccessErr, VendorError::kPeerAccess};
    case 3:
      return {WcStatus::kRemOpErr, VendorError::kPeerOperation};
    default:
      return {WcStatus::kRemInvReqErr, VendorError::kPeerInvalidRequest};
  }
}

}  // namespace hostnic::driver
