// SPDX-License-Identifier: BSD-3-Clause
// Precompiled: what every part of the driver includes. No source relies on it; each includes what
// it uses.
#include "verbs-shim/driver/driver_core.h"
