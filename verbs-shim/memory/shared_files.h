// SPDX-License-Identifier: BSD-3-Clause
// A descriptor for memory that the application shares already, so that hostnicd can map the same
// file.
#pragma once

#include "verbs-shim/memory/areas.h"

namespace hostnic::memory {

// Returns a new descriptor (close-on-exec) of the tmpfs or hugetlbfs file behind a shared area, or
// -1: from the process's own descriptors, the file's path, or /proc/self/map_files (which
// privileged processes may open; it also leads to System V segments and shared anonymous memory).
// It is writable if the area is.
int open_shared_file(const Area& area);

}  // namespace hostnic::memory
