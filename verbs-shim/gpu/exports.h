// SPDX-License-Identifier: BSD-3-Clause
// What is visible of libhostnic-gpu: functions with CUDA's, HIP's and HSA's names. Names, numbers
// and the order of arguments are those interfaces'; the declarations here are our own. The
// functions check what they are handed, and never throw.
#pragma once

#include "verbs-shim/gpu/memory.h"

#define HOSTNIC_GPU_CALL extern "C" [[gnu::visibility("default")]]

namespace hostnic::gpu {

// What all three interfaces return but HSA.
using Status = int;
constexpr Status status(Result result) { return static_cast<Status>(result); }

// An address as the driver's interface has it.
using Address = unsigned long long;
inline void* pointer(Address address) { return reinterpret_cast<void*>(address); }

// A handle of something that needs to be no more than different from others.
struct Handle {
  int device = 0;
};

}  // namespace hostnic::gpu
