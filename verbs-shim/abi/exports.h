// SPDX-License-Identifier: BSD-3-Clause
// How an entry point of the library is defined. Everything else in it is hidden; the version that a
// symbol gets is in hostnic-verbs.map.
#pragma once

#define HOSTNIC_VERB extern "C" [[gnu::visibility("default")]]
