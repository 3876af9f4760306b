// SPDX-License-Identifier: BSD-3-Clause
// Precompiled: what every part of hostnic-stress includes. No source relies on it; each includes
// what it uses.
#include <fmt/format.h>

#include "tests/apps/stress/common.h"
#include "tests/apps/stress/connection.h"
