// SPDX-License-Identifier: BSD-3-Clause
// Leads calls of libc's functions to this library's, where it comes behind libc in the dynamic
// linker's search: loaded as somebody's library, by path or LD_LIBRARY_PATH, and not preloaded. The
// entries of other libraries' offset tables that lead to libc are overwritten; those that lead to
// another one (an allocator's free) stay, as do functions that the program defines itself.
#pragma once

namespace hostnic::elf {

// Begins with it, for all libraries that are loaded now. Does nothing where this library comes
// before libc. To be called once, by a constructor; needs memory, without which nothing is led
// here.
void lead_imports_here();

// Does the same for libraries that came since. A call in time is one before memory is registered,
// and whenever a program looks for a function. For any thread, also within constructors, not in
// signal handlers; while another thread does it, it returns at once.
void lead_new_imports_here();

// Whether imports are led here: this library was not preloaded.
bool leads_imports();

}  // namespace hostnic::elf
