// SPDX-License-Identifier: BSD-3-Clause
// Polling of completion queues of which something may be held back (faults/late_queues.h): by
// ibv_poll_cq, and as extended queues have it, whose completion is then a copy of the device's.
#pragma once

#include <infiniband/verbs.h>

#include "verbs-shim/faults/late_queues.h"

namespace hostnic::calls {

// By the next library's ibv_modify_qp, so that no rule is about it.
void to_error(ibv_qp* qp);

// As ibv_poll_cq().
int poll_late(ibv_cq* cq, int entries, ibv_wc* completions);

// As ibv_start_poll(), ibv_next_poll() and ibv_end_poll().
int start_late(ibv_cq_ex* cq);
int next_late(ibv_cq_ex* cq);
void end_late(ibv_cq_ex* cq);
// Whether the poll that is under way has begun so.
bool is_late(const ibv_cq_ex* cq);
// The completion at which it is; null: none of ours.
const faults::HeldCompletion* held_completion(const ibv_cq_ex* cq);

// Has what is read of a completion be that of such a poll, and undoes that.
void watch_reads(ibv_cq_ex& cq);
void forget_reads(ibv_cq_ex& cq, const ibv_cq_ex& own);

}  // namespace hostnic::calls
