// SPDX-License-Identifier: BSD-3-Clause
// Memory that threads of this process are about to discard: they are in madvise(MADV_DONTNEED),
// and wait there in the kernel (/proc/self/task/TID/syscall).
#pragma once

#include <cstdint>

namespace hostnic::memory {

// The parameters are the range that a call discards, whole pages. It may do so only in part.
using Discards = void(uint64_t start, uint64_t end);

// Calls use() for each such thread but the calling one. Needs no memory and no lock.
void for_each_discard(Discards* use);

// What one line of /proc/self/task/TID/syscall says: whether the call is a discard, and of what.
bool parse_discard(const char* line, const char* end, uint64_t& start, uint64_t& discard_end);

}  // namespace hostnic::memory
