// SPDX-License-Identifier: BSD-3-Clause
// What the dynamic linker will do with a command: whether it looks at LD_PRELOAD at all, and which
// sanitizer's runtime has to come first there.
#pragma once

#include <string>
#include <vector>

namespace hostnic::cli {

struct ElfProgram {
  bool is_elf = false;
  bool is_static = false;           // no dynamic linker, and none itself: no preloading
  std::vector<std::string> needed;  // names of its libraries
};

// Finds the file that executing `name` means, by PATH where it has no slash; empty: none.
std::string find_program(const std::string& name, const char* path);
// Reads a program; scripts and what can't be read are no ELF programs.
ElfProgram read_elf_program(const std::string& file);
// The libraries that a program needs which insist on being the first one loaded.
std::vector<std::string> sanitizer_runtimes(const ElfProgram& program);

}  // namespace hostnic::cli
