// SPDX-License-Identifier: BSD-3-Clause
// Tells the processor that this thread looks at memory in a loop: it then leaves more to its
// sibling, and the loop ends without a flushed pipeline. Any thread; nothing is waited for.
#pragma once

namespace hostnic {

inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" : : : "memory");
#else
#error "spin_pause.h knows x86-64 and aarch64: add this machine's instruction"
#endif
}

}  // namespace hostnic
