// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/elf/imports.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "verbs-shim/elf/machine.h"
#include "verbs-shim/elf/symbols.h"

namespace hostnic::elf {
namespace {

// A function that old glibcs have as well, and no sanitizer's runtime replaces: whose is found
// first says whether this library comes before libc.
constexpr const char* kProbe = "eaccess";

struct Range {
  uintptr_t begin = 0, end = 0;
  bool has(uintptr_t address) const { return address >= begin && address < end; }
};

// A function that this library has in libc's place.
struct Replacement {
  uintptr_t ours = 0;
  bool is_libcs_by_default =
      false;  // what a program's reference that is not bound yet will lead to
};

// What a pass over the libraries needs. It is made by a constructor and stays.
struct Replacements {
  std::unordered_map<std::string_view, Replacement> by_name;
  std::vector<Range> libc;  // where libc's parts lie

  bool is_libcs(uintptr_t address) const {
    return std::any_of(libc.begin(), libc.end(),
                       [&](const Range& range) { return range.has(address); });
  }
};

constinit std::atomic<Replacements*> replacements{nullptr};
constinit std::atomic<bool> at_work{false};
constinit std::atomic<unsigned long long> libraries_seen{0};

const char* base_name(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash != nullptr ? slash + 1 : path;
}

bool is_libc_part(const dl_phdr_info& library) {
  const char* name = base_name(library.dlpi_name);
  return same_text(name, "libc.so.6") || same_text(name, "libdl.so.2") ||
         same_text(name, "libpthread.so.0");
}

// The vDSO's tables are not the dynamic linker's to relocate, and its own calls are its own.
bool is_left_alone(const dl_phdr_info& library) {
  const char* name = base_name(library.dlpi_name);
  return starts_with(name, "linux-vdso") || starts_with(name, "ld-linux");
}

Range extent_of(const dl_phdr_info& library) {
  Range range{UINTPTR_MAX, 0};
  for (size_t i = 0; i < library.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = library.dlpi_phdr[i];
    if (segment.p_type != PT_LOAD) continue;
    range.begin = std::min(range.begin, library.dlpi_addr + segment.p_vaddr);
    range.end = std::max(range.end, library.dlpi_addr + segment.p_vaddr + segment.p_memsz);
  }
  return range;
}

// One library's tables of relocations.
class Library {
 public:
  explicit Library(const dl_phdr_info& info)
      : base_(info.dlpi_addr), extent_(extent_of(info)), is_libc_(is_libc_part(info)) {
    for (size_t i = 0; i < info.dlpi_phnum; ++i) {
      const ElfW(Phdr)& segment = info.dlpi_phdr[i];
      if (segment.p_type == PT_DYNAMIC)
        read_dynamic(reinterpret_cast<const ElfW(Dyn)*>(base_ + segment.p_vaddr));
      if (segment.p_type == PT_GNU_RELRO) note_read_only(segment);
    }
  }

  void lead(const Replacements& known) {
    if (symbols_ == nullptr || strings_ == nullptr) return;
    for (const ElfW(Rela) & each : Table{plt_, plt_bytes_}) lead(known, each);
    for (const ElfW(Rela) & each : Table{others_, others_bytes_}) lead(known, each);
    if (is_opened_) protect(PROT_READ);
  }

 private:
  struct Table {
    const ElfW(Rela) * first;
    size_t bytes;
    const ElfW(Rela) * begin() const { return first; }
    const ElfW(Rela) * end() const {
      return first + (first != nullptr ? bytes / sizeof *first : 0);
    }
  };

  // glibc relocates the addresses in this table in place; musl does not.
  uintptr_t address(const ElfW(Dyn) & entry) const {
    return entry.d_un.d_ptr < base_ ? entry.d_un.d_ptr + base_ : entry.d_un.d_ptr;
  }

  void read_dynamic(const ElfW(Dyn) * entry) {
    for (; entry->d_tag != DT_NULL; ++entry) {
      switch (entry->d_tag) {
        case DT_SYMTAB:
          symbols_ = reinterpret_cast<const ElfW(Sym)*>(address(*entry));
          break;
        case DT_STRTAB:
          strings_ = reinterpret_cast<const char*>(address(*entry));
          break;
        case DT_JMPREL:
          plt_ = reinterpret_cast<const ElfW(Rela)*>(address(*entry));
          break;
        case DT_PLTRELSZ:
          plt_bytes_ = entry->d_un.d_val;
          break;
        case DT_RELA:
          others_ = reinterpret_cast<const ElfW(Rela)*>(address(*entry));
          break;
        case DT_RELASZ:
          others_bytes_ = entry->d_un.d_val;
          break;
        default:
          break;
      }
    }
  }

  // The dynamic linker has made whole pages of this segment read-only.
  void note_read_only(const ElfW(Phdr) & segment) {
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    read_only_.begin = (base_ + segment.p_vaddr) & ~(page - 1);
    read_only_.end = (base_ + segment.p_vaddr + segment.p_memsz) & ~(page - 1);
  }

  bool protect(int protection) const {
    return syscall(SYS_mprotect, read_only_.begin, read_only_.end - read_only_.begin, protection) ==
           0;
  }

  void lead(const Replacements& known, const ElfW(Rela) & entry) {
    const auto type = ELF64_R_TYPE(entry.r_info);
    if (type != kJumpSlot && type != kGlobalData && (type != kAddress || entry.r_addend != 0))
      return;
    const ElfW(Sym)& symbol = symbols_[ELF64_R_SYM(entry.r_info)];
    // What a library defines itself it means.
    if (symbol.st_name == 0 || (symbol.st_shndx != SHN_UNDEF && !is_libc_)) return;
    const auto found = known.by_name.find(strings_ + symbol.st_name);
    if (found == known.by_name.end()) return;
    const uintptr_t at = base_ + entry.r_offset;
    const uintptr_t now = *reinterpret_cast<const uintptr_t*>(at);
    const bool is_unbound = type == kJumpSlot && !is_libc_ && extent_.has(now);
    if (!(is_unbound ? found->second.is_libcs_by_default : known.is_libcs(now))) return;
    if (read_only_.has(at) && !is_opened_ && !(is_opened_ = protect(PROT_READ | PROT_WRITE)))
      return;
    __atomic_store_n(reinterpret_cast<uintptr_t*>(at), found->second.ours, __ATOMIC_RELEASE);
  }

  const uintptr_t base_;
  const Range extent_;
  const bool is_libc_;
  const ElfW(Sym) * symbols_ = nullptr;
  const char* strings_ = nullptr;
  const ElfW(Rela) * plt_ = nullptr;
  const ElfW(Rela) * others_ = nullptr;
  size_t plt_bytes_ = 0, others_bytes_ = 0;
  Range read_only_;
  bool is_opened_ = false;
};

unsigned long long libraries_now() {
  unsigned long long count = 0;
  const auto first = [](dl_phdr_info* info, size_t, void* to) {
    *static_cast<unsigned long long*>(to) = info->dlpi_adds;
    return 1;
  };
  dl_iterate_phdr(first, &count);
  return count;
}

void lead_all(const Replacements& known) {
  const auto each = [](dl_phdr_info* info, size_t, void* all) {
    if (!is_left_alone(*info)) Library(*info).lead(*static_cast<const Replacements*>(all));
    return 0;
  };
  dl_iterate_phdr(each, const_cast<Replacements*>(&known));
}

using Dlsym = void* (*)(void*, const char*);

Replacements* find_replacements(Dlsym real_dlsym) {
  auto* known = new Replacements;
  const auto note_libc = [](dl_phdr_info* info, size_t, void* all) {
    if (is_libc_part(*info)) static_cast<Replacements*>(all)->libc.push_back(extent_of(*info));
    return 0;
  };
  dl_iterate_phdr(note_libc, known);
  const auto note_function = [](const char* name, void* ours, void* all) {
    static_cast<Replacements*>(all)->by_name[name].ours = reinterpret_cast<uintptr_t>(ours);
  };
  each_unversioned_function(reinterpret_cast<const void*>(&find_replacements), note_function,
                            known);
  for (auto& [name, replacement] : known->by_name) {
    // Names are those of a symbol table, and end with a zero.
    const auto found = reinterpret_cast<uintptr_t>(real_dlsym(RTLD_DEFAULT, name.data()));
    replacement.is_libcs_by_default =
        found == 0 || found == replacement.ours || known->is_libcs(found);
  }
  return known;
}

}  // namespace

void lead_imports_here() {
  const auto real_dlsym = reinterpret_cast<Dlsym>(libc_symbol("dlsym"));
  if (real_dlsym == nullptr) return;
  const void* first = real_dlsym(RTLD_DEFAULT, kProbe);
  if (first == nullptr || starts_with(library_name(first), "libhostnic-")) return;
  try {
    replacements.store(find_replacements(real_dlsym), std::memory_order_release);
  } catch (const std::bad_alloc&) {
    return;
  }
  lead_new_imports_here();
}

void lead_new_imports_here() {
  const Replacements* known = replacements.load(std::memory_order_acquire);
  if (known == nullptr) return;
  const unsigned long long now = libraries_now();
  if (libraries_seen.load(std::memory_order_relaxed) == now) return;
  if (at_work.exchange(true, std::memory_order_acquire)) return;
  lead_all(*known);
  libraries_seen.store(now, std::memory_order_relaxed);
  at_work.store(false, std::memory_order_release);
}

bool leads_imports() { return replacements.load(std::memory_order_relaxed) != nullptr; }

}  // namespace hostnic::elf
