// SPDX-License-Identifier: BSD-3-Clause
// Precompiled: what most of the `hostnic` program includes. No source relies on it; each includes
// what it uses.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>
