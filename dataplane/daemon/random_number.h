// SPDX-License-Identifier: BSD-3-Clause
// Numbers that outsiders shall not guess.
#pragma once

#include <sys/random.h>

#include <cstdint>

namespace hostnic {

// Never waits: 1 where the kernel has no random numbers yet, early in its start. [any thread]
inline uint64_t random_number() {
  uint64_t number = 1;
  [[maybe_unused]] const ssize_t got = getrandom(&number, sizeof(number), GRND_NONBLOCK);
  return number;
}

}  // namespace hostnic
