// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/calls/call.h"

#include "verbs-shim/faults/queue_pairs.h"

namespace hostnic::calls {

void Call::decide() {
  faults::FaultOccasion occasion;
  occasion.call = name_;
  if (occasion.call.starts_with("ibv_")) occasion.call.remove_prefix(4);
  if (device_ != nullptr) occasion.device = device_->name;
  occasion.qpn = qpn_;
  if (qpn_ != 0) occasion.qp_ordinal = faults::find_qp(device_, qpn_).ordinal;
  occasion.size = size_;
  occasion.state = state_;
  const faults::Decision decision = faults::decide(occasion);
  if (decision.delay_ns != 0) faults::wait_ns(decision.delay_ns);
  if (decision.taken == nullptr) return;
  error_ = decision.taken->error;
  is_minus_one_ = decision.taken->call->failure == faults::Failure::kMinusOne;
}

}  // namespace hostnic::calls
