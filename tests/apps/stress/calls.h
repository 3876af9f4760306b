// SPDX-License-Identifier: BSD-3-Clause
// Calls beside the data path: objects of all kinds that come and go, and calls that must be
// refused.
#pragma once

#include "tests/apps/stress/objects.h"

namespace hostnic::stress {

// Makes an object or several, uses them a little, and destroys them.
void make_and_destroy(Shared& shared, Rng& rng);

// A call that is wrong. Dies if it is not refused, or with another error than docs/verbs.md says.
void call_wrongly(Shared& shared, Rng& rng);

}  // namespace hostnic::stress
