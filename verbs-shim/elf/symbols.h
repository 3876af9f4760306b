// SPDX-License-Identifier: BSD-3-Clause
// Looks libc functions up without dlsym, which this library replaces: by reading libc's own dynamic
// symbol table (ELF gABI, "Dynamic Section" and "Symbol Versioning"). Calls nothing of libc, since
// AddressSanitizer looks functions up through our dlsym while its strcmp leads nowhere yet.
#pragma once

namespace hostnic::elf {

inline bool starts_with(const char* text, const char* prefix) {
  for (; *prefix != '\0'; ++text, ++prefix) {
    if (*text != *prefix) return false;
  }
  return true;
}

inline bool same_text(const char* a, const char* b) {
  while (*a != '\0' && *a == *b) {
    ++a;
    ++b;
  }
  return *a == *b;
}

// The address of the default version of `name` in the loaded libc.so.6, or in libdl and libpthread
// where those are libraries of their own; null when there is none.
// For any thread, also before constructors ran; takes no lock of the dynamic linker, allocates
// nothing.
void* libc_symbol(const char* name);

// The name that the loaded library at `address` has by itself (DT_SONAME), whatever its file is
// called; without one, its file's. Empty if unknown.
const char* library_name(const void* address);

// Whether the loaded library at `address` names `library` among those that it needs.
bool needs_library(const void* address, const char* library);

// Calls `each` with every function that the loaded library at `inside` exports without a version,
// and with `context`. Names stay valid while the library is loaded.
void each_unversioned_function(const void* inside,
                               void (*each)(const char* name, void* address, void* context),
                               void* context);

}  // namespace hostnic::elf
