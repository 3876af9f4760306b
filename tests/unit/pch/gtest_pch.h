// SPDX-License-Identifier: BSD-3-Clause
// Precompiled: the heavy headers of unit tests. No source relies on it; each includes what it uses.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>
