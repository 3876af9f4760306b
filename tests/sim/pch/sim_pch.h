// SPDX-License-Identifier: BSD-3-Clause
// Precompiled: what every simulated test includes. No source relies on it; each includes what it
// uses.
#include <gtest/gtest.h>

#include "tests/sim/pair.h"
