// SPDX-License-Identifier: BSD-3-Clause
// Precompiled: what every verbs entry point includes. No source relies on it; each includes what it
// uses.
#include "verbs-shim/abi/convert.h"
#include "verbs-shim/abi/registry.h"
