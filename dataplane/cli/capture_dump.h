// SPDX-License-Identifier: BSD-3-Clause
// `hostnic capture --dump`: captures that keep packets (--last) write them now.
#pragma once

#include "dataplane/cli/capture.h"

namespace hostnic::cli {

// Returns the exit code: 1 where nobody keeps packets, or one could not write them.
int run_dump(const CaptureOptions& options);

}  // namespace hostnic::cli
