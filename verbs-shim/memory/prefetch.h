// SPDX-License-Identifier: BSD-3-Clause
// Advice about pages before they are used: ibv_advise_mr.
#pragma once

#include <cstdint>

namespace hostnic::memory {

// Makes the pages of [va, va + length_bytes) present. Returns EFAULT if not all of it is mapped, or
// not for such an access. Succeeds without doing anything where the kernel can't (before Linux
// 5.14).
int prefetch(uint64_t va, uint64_t length_bytes, bool for_writing);

}  // namespace hostnic::memory
