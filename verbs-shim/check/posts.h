// SPDX-License-Identifier: BSD-3-Clause
// Steps that ibv_post_send and ibv_wr_complete have in common.
#pragma once

#include <cstdint>

#include "verbs-shim/check/places.h"
#include "verbs-shim/check/shadow.h"

namespace hostnic::check {

inline const void* entry_place() { return entry.caller; }

// Whether requests that are posted now are to be followed. Under the queue's post_lock.
bool is_followed(QpShadow& qp);
// Looks at one request; its pieces are filled in.
void look_at_send(QpShadow& qp, SendEntry& entry, const ibv_sge* sges, uint32_t count);
// Adds it to what is posted.
void add_send(QpShadow& qp, SendEntry& entry);

void report_no_receive(const QpShadow& qp, const SendEntry& entry);

}  // namespace hostnic::check
