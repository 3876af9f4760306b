// SPDX-License-Identifier: BSD-3-Clause
// Creating completion queues, plain and extended.
#pragma once

#include "verbs-shim/abi/objects.h"

namespace hostnic::abi {

// Creates a queue; checks `attr` except for the extended fields. Returns null with errno set.
CqObject* create_cq_object(ContextObject& context, const ibv_cq_init_attr_ex& attr);

}  // namespace hostnic::abi
