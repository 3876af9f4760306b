// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/execute/outcome.h"

#include <utility>

namespace hostnic {

const RefusalMeaning& meaning_of(Refusal refusal) {
  using wire::NakCode;
  static constexpr RefusalMeaning kInvalid{NakCode::kInvalidRequest, kEventRequestError, {}};
  static constexpr RefusalMeaning kAccess{NakCode::kRemoteAccess, kEventAccessError, {}};
  static constexpr RefusalMeaning kReceiveAccess{
      NakCode::kRemoteAccess, kEventAccessError | kEventRecvError, RecvStatus::kAccessError};
  static constexpr RefusalMeaning kReceiveTooLong{NakCode::kInvalidRequest, kEventRecvError,
                                                  RecvStatus::kLengthError};
  static constexpr RefusalMeaning kReceiveMemory{NakCode::kRemoteOperational, kEventRecvError,
                                                 RecvStatus::kProtectionError};
  switch (refusal) {
    case Refusal::kInvalidRequest:
    case Refusal::kTooManyReads:
    case Refusal::kMisaligned:
    case Refusal::kMessageTooLong:
      break;
    case Refusal::kAccess:
      return kAccess;
    case Refusal::kReceiveAccess:
      return kReceiveAccess;
    case Refusal::kReceiveTooLong:
      return kReceiveTooLong;
    case Refusal::kReceiveMemory:
      return kReceiveMemory;
  }
  return kInvalid;
}

}  // namespace hostnic
