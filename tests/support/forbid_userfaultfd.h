// SPDX-License-Identifier: BSD-3-Clause
// A process without userfaultfd, as in a container whose seccomp profile forbids it.
#pragma once

#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "tests/support/seccomp_filter.h"

namespace hostnic {

// Has userfaultfd, by its system call and by its device, answer EPERM to the calling thread and
// those that it starts, for good. Returns false, with errno, if that failed.
inline bool forbid_userfaultfd() {
  constexpr uint32_t kNewUserfaultfd = 0xaa00;  // USERFAULTFD_IOC_NEW
  const sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kNewUserfaultfd, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  return filter_calls(filter);
}

}  // namespace hostnic
