// SPDX-License-Identifier: BSD-3-Clause
// Has calls of libc's functions come here where this library was not preloaded (elf/imports.h).
// Constructors of libraries run after those of what they need, so that this is before any of a
// library that uses verbs.
#include "verbs-shim/elf/imports.h"

[[gnu::constructor]] static void lead_imports() { hostnic::elf::lead_imports_here(); }
