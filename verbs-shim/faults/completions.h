// SPDX-License-Identifier: BSD-3-Clause
// Completions that are made to fail. As on an adapter, a queue pair whose completion fails is in
// ERR then, and what it had posted behind it is flushed.
#pragma once

#include <infiniband/verbs.h>

namespace hostnic::faults {

// A completion as both kinds of queues deliver it.
struct Completion {
  ibv_wc_status status;
  uint32_t vendor_err;
  int opcode;
  uint32_t qpn;  // 0: the queue does not tell
  uint32_t byte_len;
};

// Looks at one that is about to be delivered; returns whether it has been changed (status and
// vendor error). `to_error` puts a queue pair into ERR.
bool spoil(const ibv_context* context, Completion& completion, void (*to_error)(ibv_qp*));

}  // namespace hostnic::faults
