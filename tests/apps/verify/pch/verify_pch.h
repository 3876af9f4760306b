// SPDX-License-Identifier: BSD-3-Clause
// Precompiled: what most of hostnic-verify includes. No source relies on it; each includes what it
// uses.
#include <fmt/format.h>

#include "tests/apps/verify/session.h"
