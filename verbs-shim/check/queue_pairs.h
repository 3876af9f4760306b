// SPDX-License-Identifier: BSD-3-Clause
// Objects as such: what uses what, and where it was made.
#pragma once

#include <infiniband/verbs.h>

#include <initializer_list>

#include "verbs-shim/check/shadow.h"

namespace hostnic::check {

void note_object(ObjectKind kind, const void* object, const ibv_context* context,
                 std::initializer_list<const void*> uses);
// A queue pair that is about to go, and what was posted to it.
void forget_qp(const ibv_qp* qp);
// How many events of this object are not acknowledged.
uint32_t events_of(const void* object);

}  // namespace hostnic::check
