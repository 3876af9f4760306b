// SPDX-License-Identifier: BSD-3-Clause
// The reason of a failed request beyond its status: what ibv_wc::vendor_err carries, and what it
// means in words, in one table (docs/errors.md, `hostnic explain --vendor-err N`).
#pragma once

#include <cstdint>
#include <span>

namespace hostnic {

// Numbers are API: none is ever given to another reason.
enum class VendorError : uint32_t {
  kNone = 0,
  kFlushed = 1,
  kLocalKey = 2,
  kLocalLength = 3,
  kPeerInvalidRequest = 4,
  kPeerAccess = 5,
  kPeerOperation = 6,
  kNoAnswer = 7,
  kReceiverNotReady = 8,
  kWindow = 9,
  kBadResponse = 10,
  kQpModifiedToError = 11,
  kAddressDomain = 12,
  kPathMtu = 13,
  kNotDone = 14,
};

struct VendorErrorInfo {
  VendorError code;
  const char* status;   // the ibv_wc_status that goes with it, in the verbs' names
  const char* meaning;  // what has happened
  const char* remedy;   // where to look
  const char* adapter;  // what an adapter says of the same
};

// All of them, by number.
std::span<const VendorErrorInfo> vendor_errors();
// Null: no code of ours.
const VendorErrorInfo* find_vendor_error(uint32_t code);
// What a completion's status is called: "remote access error"; "unknown".
const char* status_text(uint32_t wc_status);

}  // namespace hostnic
