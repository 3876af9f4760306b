// SPDX-License-Identifier: BSD-3-Clause
// Precompiled: what most of the daemon includes. No source relies on it; each includes what it
// uses.
#include <fmt/format.h>

#include "dataplane/daemon/control/commands/commands.h"
#include "dataplane/daemon/daemon.h"
