// SPDX-License-Identifier: BSD-3-Clause
// A library that has nothing to do with verbs.
#include <cstdlib>

extern "C" void* plain_realpath() { return reinterpret_cast<void*>(&realpath); }
