// SPDX-License-Identifier: BSD-3-Clause
// What our libibverbs.so.1 and librdmacm.so.1 are made of: functions that jump to where
// libhostnic-verbs.so says, which is asked when one is called for the first time. The libraries
// have no state of their own, and there is one copy of libhostnic-verbs.so in a process, however
// many ways lead to it.
#pragma once

#include <cstdint>

namespace hostnic {

// Whose function it is.
enum class ForwardTo : uint32_t {
  kOurVerbs,  // ours
  kVerbs,     // the machine's libibverbs': private to rdma-core, or of its oldest ABI
  kRdmaCm,    // the machine's librdmacm's, which works on our device files
};

// What a function returns that nobody has; errno is ENOSYS.
enum class ForwardFailure : uint32_t {
  kErrno,     // ENOSYS itself
  kMinusOne,  // -1
  kNothing,   // 0, or a null pointer
  kText,      // an empty text
};

// One function, as make_forwards.py writes them.
struct Forward {
  const char* name;
  const char* version;
  ForwardTo to;
  ForwardFailure failure;
};

}  // namespace hostnic

// The address of a function, or null. In libhostnic-verbs.so; for any thread, errno stays.
extern "C" void* hostnic_library_symbol(hostnic::ForwardTo to, const char* name,
                                        const char* version);
