// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/elf/library_file.h"

#include <cctype>
#include <cstring>

#include "verbs-shim/elf/machine.h"
#include "verbs-shim/elf/mapped_file.h"
#include "verbs-shim/elf/symbols.h"

namespace hostnic::elf {
namespace {

constexpr size_t kMaxDynamicEntries = 4096;

bool contains(const char* bytes, size_t size, const char* word) {
  const char* const end = bytes + size;
  for (const char* at = bytes; at < end; ++at) {
    at = static_cast<const char*>(memmem(at, static_cast<size_t>(end - at), word, strlen(word)));
    if (at == nullptr) return false;
    // The word must not be the end of another one.
    if (at == bytes || !isalnum(static_cast<unsigned char>(at[-1]))) return true;
  }
  return false;
}

bool mentions_verbs(const char* bytes, size_t size) {
  // These words are functions and the names of libraries by which they are looked up, and devices
  // in sysfs and /dev.
  for (const char* word :
       {"ibv_", "libibverbs", "librdmacm", "/sys/class/infiniband", "/dev/infiniband"})
    if (contains(bytes, size, word)) return true;
  return false;
}

// A part of the file as its headers give it; it is empty where they lead out of the file.
struct Part {
  const char* bytes = nullptr;
  size_t size = 0;

  Part() = default;
  Part(const MappedFile& file, uint64_t offset, uint64_t length) {
    if (offset > file.size() || length > file.size() - offset) return;
    bytes = file.bytes() + offset;
    size = length;
  }
  // The text up to the terminating zero, or the part's end.
  std::string text(uint64_t offset) const {
    if (offset >= size) return {};
    return {bytes + offset, strnlen(bytes + offset, size - offset)};
  }
};

class Headers {
 public:
  explicit Headers(const MappedFile& file) : file_(file) {
    file.read(0, header_);
    valid_ = memcmp(header_.e_ident, ELFMAG, SELFMAG) == 0 &&
             header_.e_ident[EI_CLASS] == ELFCLASS64 && header_.e_machine == kMachine &&
             header_.e_phentsize == sizeof(Elf64_Phdr);
  }
  bool valid() const { return valid_; }

  Elf64_Phdr segment(size_t index) const {
    Elf64_Phdr segment{};
    file_.read(header_.e_phoff + index * sizeof(segment), segment);
    return segment;
  }
  size_t segments() const { return header_.e_phnum; }

  Elf64_Shdr section(size_t index) const {
    Elf64_Shdr section{};
    file_.read(header_.e_shoff + index * sizeof(section), section);
    return section;
  }
  size_t sections() const {
    return header_.e_shoff != 0 && header_.e_shentsize == sizeof(Elf64_Shdr) ? header_.e_shnum : 0;
  }
  Part section_names() const {
    if (header_.e_shstrndx >= sections()) return {};
    const Elf64_Shdr names = section(header_.e_shstrndx);
    return {file_, names.sh_offset, names.sh_size};
  }

  // The part that is loaded at `address`, as far as one segment goes.
  Part loaded(uint64_t address, uint64_t length) const {
    for (size_t i = 0; i < segments(); ++i) {
      const Elf64_Phdr each = segment(i);
      if (each.p_type != PT_LOAD || address < each.p_vaddr) continue;
      const uint64_t inside = address - each.p_vaddr;
      if (inside < each.p_filesz && length <= each.p_filesz - inside)
        return {file_, each.p_offset + inside, length};
    }
    return {};
  }

 private:
  const MappedFile& file_;
  Elf64_Ehdr header_{};
  bool valid_ = false;
};

void read_dynamic_segment(const MappedFile& file, const Headers& headers, const Elf64_Phdr& dynamic,
                          LibraryFile& found) {
  std::vector<uint64_t> needed;
  uint64_t strings = 0, strings_size = 0, rpath = UINT64_MAX, runpath = UINT64_MAX;
  for (size_t i = 0; i < kMaxDynamicEntries && (i + 1) * sizeof(Elf64_Dyn) <= dynamic.p_filesz;
       ++i) {
    Elf64_Dyn entry{};
    file.read(dynamic.p_offset + i * sizeof(entry), entry);
    const uint64_t value = entry.d_un.d_val;
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_NEEDED) needed.push_back(value);
    if (entry.d_tag == DT_STRTAB) strings = value;
    if (entry.d_tag == DT_STRSZ) strings_size = value;
    if (entry.d_tag == DT_RPATH) rpath = value;
    if (entry.d_tag == DT_RUNPATH) runpath = value;
  }
  const Part table = headers.loaded(strings, strings_size);
  found.names_verbs |= mentions_verbs(table.bytes, table.size);
  for (const uint64_t name : needed) found.needed.push_back(table.text(name));
  if (runpath != UINT64_MAX || rpath != UINT64_MAX)
    found.run_path = table.text(runpath != UINT64_MAX ? runpath : rpath);
}

// Whether constants could be the argument of dlopen or dlsym for verbs. Only sections are searched,
// because the segment that has them is most of a large library; where those were stripped, the
// segments are.
bool constants_mention_verbs(const MappedFile& file, const Headers& headers) {
  const Part names = headers.section_names();
  for (size_t i = 0; i < headers.sections(); ++i) {
    const Elf64_Shdr section = headers.section(i);
    const std::string name = names.text(section.sh_name);
    if (!starts_with(name.c_str(), ".rodata") && !starts_with(name.c_str(), ".data")) continue;
    if (section.sh_type != SHT_PROGBITS) continue;
    const Part content(file, section.sh_offset, section.sh_size);
    if (mentions_verbs(content.bytes, content.size)) return true;
  }
  if (names.size != 0) return false;
  for (size_t i = 0; i < headers.segments(); ++i) {
    const Elf64_Phdr segment = headers.segment(i);
    if (segment.p_type != PT_LOAD) continue;
    const Part content(file, segment.p_offset, segment.p_filesz);
    if (mentions_verbs(content.bytes, content.size)) return true;
  }
  return false;
}

}  // namespace

std::optional<LibraryFile> read_library_file(const char* path) {
  const MappedFile file(path);
  if (!file.is_open()) return std::nullopt;
  LibraryFile found;
  const Headers headers(file);
  if (!headers.valid()) return found;
  for (size_t i = 0; i < headers.segments(); ++i) {
    const Elf64_Phdr segment = headers.segment(i);
    if (segment.p_type == PT_DYNAMIC) read_dynamic_segment(file, headers, segment, found);
  }
  found.names_verbs = found.names_verbs || constants_mention_verbs(file, headers);
  return found;
}

}  // namespace hostnic::elf
