// SPDX-License-Identifier: BSD-3-Clause
// Completions that are made to fail. As on an adapter, a queue pair whose completion fails is in
// ERR then, and what it had posted behind it is flushed.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "protocol/faults/fault_spec.h"

namespace hostnic::faults {

// A completion as both kinds of queues deliver it.
struct Completion {
  ibv_wc_status status;
  uint32_t vendor_err;
  int opcode;
  uint32_t qpn;  // 0: the queue does not tell
  uint32_t byte_len;
};

// What rules say of a completion with success.
struct Judgement {
  const FaultRule* taken = nullptr;   // the rule whose status it gets; null: it stays
  uint64_t delay_ns = 0;              // it is delivered so much later,
  const FaultRule* behind = nullptr;  // and not before what this rule names; null: that is all
};
// Counts one that the device has delivered. `cq_ordinal`: of its queue, 0: unknown.
Judgement judge(const ibv_context* context, const Completion& completion, uint32_t cq_ordinal);
// Changes one that is about to be delivered to the program; returns whether it has been changed
// (status and vendor error). `to_error` puts a queue pair into ERR.
bool spoil_as_judged(const ibv_context* context, Completion& completion, const Judgement& judgement,
                     void (*to_error)(ibv_qp*));
// Does both, where nothing is held back.
bool spoil(const ibv_context* context, Completion& completion, uint32_t cq_ordinal,
           void (*to_error)(ibv_qp*));

}  // namespace hostnic::faults
