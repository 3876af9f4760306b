// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/faults/completions.h"

#include "verbs-shim/faults/injector.h"
#include "verbs-shim/faults/queue_pairs.h"

namespace hostnic::faults {

bool spoil(const ibv_context* context, Completion& completion, void (*to_error)(ibv_qp*)) {
  if (completion.status != IBV_WC_SUCCESS) return false;
  const KnownQp of = find_qp(context->device, completion.qpn);
  // What has arrived before is delivered; what was sent behind is not known to have arrived.
  if (of.failed) {
    if ((completion.opcode & IBV_WC_RECV) != 0) return false;
    completion.status = IBV_WC_WR_FLUSH_ERR;
    completion.vendor_err = 0;
    return true;
  }
  FaultOccasion occasion;
  occasion.subject = Subject::kCompletion;
  occasion.device = context->device->name;
  occasion.qpn = completion.qpn;
  occasion.qp_ordinal = of.ordinal;
  occasion.size = completion.byte_len;
  occasion.opcode = completion.opcode;
  const Decision decision = decide(occasion);
  if (decision.taken == nullptr) return false;
  completion.status = static_cast<ibv_wc_status>(decision.taken->status);
  completion.vendor_err = decision.taken->vendor;
  if (of.qp != nullptr) {
    set_failed(of.qp, true);
    to_error(of.qp);
  }
  return true;
}

}  // namespace hostnic::faults
