// SPDX-License-Identifier: BSD-3-Clause
// A library that is linked to libibverbs. Which definitions it was bound to, library_test.cc
// asks.
#include <infiniband/verbs.h>

#include <cstdlib>

extern "C" void* linked_device_list() { return reinterpret_cast<void*>(&ibv_get_device_list); }
extern "C" void* linked_realpath() { return reinterpret_cast<void*>(&realpath); }
