// SPDX-License-Identifier: BSD-3-Clause
// Attributes of pointers, whose numbers CUDA's driver and HIP have in common.
#pragma once

#include "verbs-shim/gpu/memory.h"

namespace hostnic::gpu {

// Writes one attribute of `block`, of which `asked` is an address, to `data`, which has room for
// its type. kInvalidValue: the memory has none; kNotSupported: a number that is not known.
Result pointer_attribute(void* data, int attribute, const Block& block, const void* asked);
// Writes several; those that an address does not have are null. Of memory that is not CUDA's, too.
Result pointer_attributes(unsigned int count, const int* attributes, void** data,
                          const void* asked);

}  // namespace hostnic::gpu
