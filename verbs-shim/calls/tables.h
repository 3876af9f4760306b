// SPDX-License-Identifier: BSD-3-Clause
// Calls that programs make through tables of functions: of an open device, of an extended CQ, and
// of a queue pair that builds its requests (ibv_wr_*). The tables of an object get traced functions
// when it is made, so that any provider's calls are seen; nothing is touched while nobody traces.
#pragma once

#include <infiniband/verbs.h>

namespace hostnic::calls {

// A device that was opened; null: none was.
void watch_context(ibv_context* context);
void watch_cq(ibv_cq_ex* cq);
void watch_qp(ibv_qp_ex* qp);
// An object that is about to go gets its own functions back, since another one may be at its
// address at once. Watch it again if it did not go.
void forget_context(ibv_context* context);
void forget_cq(ibv_cq* cq);
void forget_qp(ibv_qp* qp);
// Whether it is watched.
bool is_watched_cq(const ibv_cq* cq);
bool is_watched_qp(const ibv_qp* qp);

// The functions of the device's own; null: an extended queue is not watched.
const ibv_context_ops& device_ops(const ibv_context* context);
const ibv_cq_ex* device_functions(const ibv_cq_ex* cq);

}  // namespace hostnic::calls
