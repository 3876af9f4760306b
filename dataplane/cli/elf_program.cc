// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/elf_program.h"

#include <elf.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

namespace hostnic::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxHeaders = 256, kMaxDynamicEntries = 4096, kMaxNameBytes = 256;

// Reads a T at an offset of the file.
template <typename T>
std::optional<T> read_at(std::ifstream& file, uint64_t offset) {
  T value{};
  file.clear();
  file.seekg(static_cast<std::streamoff>(offset));
  if (!file.read(reinterpret_cast<char*>(&value), sizeof(value))) return std::nullopt;
  return value;
}

std::string text_at(std::ifstream& file, uint64_t offset) {
  file.clear();
  file.seekg(static_cast<std::streamoff>(offset));
  std::string text(kMaxNameBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return text.substr(0, text.find('\0'));
}

// The offset in the file of a loaded address.
uint64_t offset_of(const std::vector<Elf64_Phdr>& headers, uint64_t address) {
  for (const Elf64_Phdr& header : headers) {
    if (header.p_type == PT_LOAD && address >= header.p_vaddr &&
        address - header.p_vaddr < header.p_filesz)
      return header.p_offset + (address - header.p_vaddr);
  }
  return 0;
}

struct DynamicSegment {
  std::vector<std::string> needed;
  std::string own_name;  // DT_SONAME
};

DynamicSegment read_dynamic(std::ifstream& file, const std::vector<Elf64_Phdr>& headers,
                            const Elf64_Phdr& dynamic) {
  std::vector<uint64_t> names;
  uint64_t strings = 0;
  std::optional<uint64_t> own_name;
  for (size_t i = 0; i < kMaxDynamicEntries && (i + 1) * sizeof(Elf64_Dyn) <= dynamic.p_filesz;
       ++i) {
    const auto entry = read_at<Elf64_Dyn>(file, dynamic.p_offset + i * sizeof(Elf64_Dyn));
    if (!entry || entry->d_tag == DT_NULL) break;
    if (entry->d_tag == DT_NEEDED) names.push_back(entry->d_un.d_val);
    if (entry->d_tag == DT_SONAME) own_name = entry->d_un.d_val;
    if (entry->d_tag == DT_STRTAB) strings = offset_of(headers, entry->d_un.d_ptr);
  }
  DynamicSegment found;
  if (strings == 0) return found;
  for (const uint64_t name : names) found.needed.push_back(text_at(file, strings + name));
  if (own_name) found.own_name = text_at(file, strings + *own_name);
  return found;
}

}  // namespace

std::string find_program(const std::string& name, const char* path) {
  if (name.find('/') != std::string::npos) return name;
  const std::string directories = path != nullptr ? path : "/bin:/usr/bin";
  for (size_t at = 0; at <= directories.size();) {
    const size_t end = std::min(directories.find(':', at), directories.size());
    const fs::path candidate = fs::path(end == at ? "." : directories.substr(at, end - at)) / name;
    std::error_code error;
    if (fs::is_regular_file(candidate, error) && access(candidate.c_str(), X_OK) == 0)
      return candidate.string();
    at = end + 1;
  }
  return {};
}

ElfProgram read_elf_program(const std::string& path) {
  ElfProgram program;
  std::ifstream file(path, std::ios::binary);
  const auto header = read_at<Elf64_Ehdr>(file, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_phentsize != sizeof(Elf64_Phdr))
    return program;
  std::vector<Elf64_Phdr> headers;
  const Elf64_Phdr* dynamic = nullptr;
  bool has_interpreter = false;
  for (size_t i = 0; i < header->e_phnum && i < kMaxHeaders; ++i) {
    const auto each = read_at<Elf64_Phdr>(file, header->e_phoff + i * sizeof(Elf64_Phdr));
    if (!each) return program;
    headers.push_back(*each);
    has_interpreter |= each->p_type == PT_INTERP;
  }
  for (const Elf64_Phdr& each : headers)
    if (each.p_type == PT_DYNAMIC) dynamic = &each;
  program.is_elf = true;
  program.is_static = !has_interpreter;
  if (dynamic == nullptr) return program;
  DynamicSegment found = read_dynamic(file, headers, *dynamic);
  program.needed = std::move(found.needed);
  // The dynamic linker, run as a program to start another, does what it always does.
  if (found.own_name.starts_with("ld-linux")) program.is_static = false;
  return program;
}

std::vector<std::string> sanitizer_runtimes(const ElfProgram& program) {
  std::vector<std::string> runtimes;
  for (const std::string& name : program.needed) {
    for (const char* prefix : {"libasan.so", "libtsan.so", "liblsan.so", "libhwasan.so",
                               "libclang_rt.asan", "libclang_rt.tsan", "libclang_rt.hwasan"})
      if (name.starts_with(prefix)) runtimes.push_back(name);
  }
  return runtimes;
}

}  // namespace hostnic::cli
