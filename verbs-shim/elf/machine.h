// SPDX-License-Identifier: BSD-3-Clause
// This processor's numbers in ELF files: whose a file is, and the relocations by which a library
// reaches other libraries' functions. A processor that is not here does not compile: the hooks'
// entry sequences (verbs-shim/hooks, verbs-shim/libraries) have to be written for it as well.
#pragma once

#include <elf.h>

#include <cstdint>

namespace hostnic::elf {

#if defined(__x86_64__)
inline constexpr uint16_t kMachine = EM_X86_64;
inline constexpr uint32_t kJumpSlot = R_X86_64_JUMP_SLOT;
inline constexpr uint32_t kGlobalData = R_X86_64_GLOB_DAT;
inline constexpr uint32_t kAddress = R_X86_64_64;
#elif defined(__aarch64__)
inline constexpr uint16_t kMachine = EM_AARCH64;
inline constexpr uint32_t kJumpSlot = R_AARCH64_JUMP_SLOT;
inline constexpr uint32_t kGlobalData = R_AARCH64_GLOB_DAT;
inline constexpr uint32_t kAddress = R_AARCH64_ABS64;
#else
#error "machine.h knows x86-64 and aarch64: add this machine's numbers"
#endif

}  // namespace hostnic::elf
