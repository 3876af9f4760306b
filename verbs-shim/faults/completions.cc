// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/faults/completions.h"

#include "verbs-shim/faults/injector.h"
#include "verbs-shim/faults/queue_pairs.h"

namespace hostnic::faults {

Judgement judge(const ibv_context* context, const Completion& completion, uint32_t cq_ordinal) {
  if (completion.status != IBV_WC_SUCCESS) return {};
  const KnownQp of = find_qp(context->device, completion.qpn);
  if (of.failed) return {};
  FaultOccasion occasion;
  occasion.subject = Subject::kCompletion;
  occasion.device = context->device->name;
  occasion.qpn = completion.qpn;
  occasion.qp_ordinal = of.ordinal;
  occasion.cq_ordinal = cq_ordinal;
  occasion.size = completion.byte_len;
  occasion.opcode = completion.opcode;
  const Decision decision = decide(occasion);
  return {decision.taken, decision.delay_ns, decision.behind};
}

bool spoil_as_judged(const ibv_context* context, Completion& completion, const Judgement& judgement,
                     void (*to_error)(ibv_qp*)) {
  if (completion.status != IBV_WC_SUCCESS) return false;
  const KnownQp of = find_qp(context->device, completion.qpn);
  // What has arrived before is delivered; what was sent behind is not known to have arrived.
  if (of.failed) {
    if ((completion.opcode & IBV_WC_RECV) != 0) return false;
    completion.status = IBV_WC_WR_FLUSH_ERR;
    completion.vendor_err = 0;
    return true;
  }
  if (judgement.taken == nullptr) return false;
  completion.status = static_cast<ibv_wc_status>(judgement.taken->status);
  completion.vendor_err = judgement.taken->vendor;
  if (of.qp != nullptr) {
    set_failed(of.qp, true);
    to_error(of.qp);
  }
  return true;
}

bool spoil(const ibv_context* context, Completion& completion, uint32_t cq_ordinal,
           void (*to_error)(ibv_qp*)) {
  return spoil_as_judged(context, completion, judge(context, completion, cq_ordinal), to_error);
}

}  // namespace hostnic::faults
