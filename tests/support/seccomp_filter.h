// SPDX-License-Identifier: BSD-3-Clause
// System calls that a container's seccomp profile refuses.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <span>

namespace hostnic {

// Filters the system calls of the calling thread, and of those that it starts, for good. Returns
// false, with errno, if that failed.
inline bool filter_calls(std::span<const sock_filter> filter) {
  const sock_fprog program{static_cast<unsigned short>(filter.size()),
                           const_cast<sock_filter*>(filter.data())};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace hostnic
