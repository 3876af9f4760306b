// SPDX-License-Identifier: BSD-3-Clause
// Which libraries loading a shared library would bring in, and whether one of them uses verbs: read
// from the files, before the dynamic linker does anything with them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hostnic::elf {

// What a file says of itself. Files that are no x86-64 ELF, or damaged, say nothing.
struct LibraryFile {
  bool names_verbs = false;         // verbs are named in its symbols, its needed libraries or its
                                    // constants
  std::vector<std::string> needed;  // as in DT_NEEDED
  std::string run_path;             // DT_RUNPATH, else DT_RPATH
};

// Reads a file; returns nothing if there is no such file. For any thread; throws std::bad_alloc
// only.
std::optional<LibraryFile> read_library_file(const char* path);

// Whether dlopen(name), called by the code at `caller`, would load code that uses verbs: what is
// loaded already is not looked into, except the library itself. The search is dlopen's. For any
// thread, also one that holds the dynamic linker's lock; throws std::bad_alloc only.
bool brings_verbs(const char* name, const void* caller);

// The path of the machine's own library of this name: as the dynamic linker's cache has it, else in
// one of its default directories, whatever the program's search path says. Ours under such a name,
// which need libhostnic-verbs.so, are none. Empty: there is none. For any thread; throws
// std::bad_alloc only.
std::string machine_library(const char* name);

}  // namespace hostnic::elf
