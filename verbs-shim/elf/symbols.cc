// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/elf/symbols.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstdint>

namespace hostnic::elf {
namespace {

// libc, and what was beside it before glibc 2.34. There the first one has no dlsym, for example.
constexpr const char* kLibcParts[] = {"libc.so.6", "libdl.so.2", "libpthread.so.0"};
constexpr uint16_t kHiddenVersion = 0x8000;  // bit of a DT_VERSYM entry: not the default version
constexpr uint16_t kNoVersion = 1;           // a DT_VERSYM entry of an exported symbol

const char* base_name(const char* path) {
  const char* name = path;
  for (; *path != '\0'; ++path) {
    if (*path == '/') name = path + 1;
  }
  return name;
}

const link_map* find_library(const char* name) {
  for (const link_map* map = _r_debug.r_map; map != nullptr; map = map->l_next) {
    if (map->l_name != nullptr && same_text(base_name(map->l_name), name)) return map;
  }
  return nullptr;
}

// The address in a dynamic entry: glibc relocates these entries of l_ld in place on most machines;
// where it does not, they are offsets.
uintptr_t address_of(const link_map& map, const ElfW(Dyn) & entry) {
  const uintptr_t value = entry.d_un.d_ptr;
  return value < map.l_addr ? value + map.l_addr : value;
}

struct SymbolTable {
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const uint16_t* versions = nullptr;
  const uint32_t* hash = nullptr;  // DT_GNU_HASH

  explicit SymbolTable(const link_map& map) {
    for (const ElfW(Dyn)* entry = map.l_ld; entry->d_tag != DT_NULL; ++entry) {
      const uintptr_t address = address_of(map, *entry);
      if (entry->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(address);
      if (entry->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(address);
      if (entry->d_tag == DT_VERSYM) versions = reinterpret_cast<const uint16_t*>(address);
      if (entry->d_tag == DT_GNU_HASH) hash = reinterpret_cast<const uint32_t*>(address);
    }
  }
  bool complete() const { return symbols && strings && versions && hash; }
};

// The library's DT_SONAME, null without one.
const char* own_name(const link_map& map) {
  const char* strings = nullptr;
  const ElfW(Dyn)* name = nullptr;
  for (const ElfW(Dyn)* entry = map.l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(address_of(map, *entry));
    if (entry->d_tag == DT_SONAME) name = entry;
  }
  return strings != nullptr && name != nullptr ? strings + name->d_un.d_val : nullptr;
}

uint32_t gnu_hash(const char* name) {
  uint32_t hash = 5381;
  for (; *name != '\0'; ++name) hash = hash * 33 + static_cast<uint8_t>(*name);
  return hash;
}

// Finds a symbol by DT_GNU_HASH: nbuckets, symoffset, bloom_size, bloom_shift, bloom words,
// buckets, chains.
const ElfW(Sym) * find(const SymbolTable& table, const char* name) {
  const uint32_t bucket_count = table.hash[0];
  const uint32_t first_symbol = table.hash[1];
  const uint32_t bloom_words = table.hash[2];
  const uint32_t* buckets = table.hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t* chains = buckets + bucket_count;
  const uint32_t wanted = gnu_hash(name);
  uint32_t index = buckets[wanted % bucket_count];
  if (index < first_symbol) return nullptr;
  for (;; ++index) {
    const uint32_t hash = chains[index - first_symbol];
    const ElfW(Sym)& symbol = table.symbols[index];
    const bool same = (hash | 1) == (wanted | 1) && symbol.st_shndx != SHN_UNDEF &&
                      same_text(table.strings + symbol.st_name, name);
    if (same && !(table.versions[index] & kHiddenVersion)) return &symbol;
    if (hash & 1) return nullptr;  // end of the bucket
  }
}

void* symbol_of(const link_map& library, const char* name) {
  const SymbolTable table(library);
  if (!table.complete()) return nullptr;
  const ElfW(Sym)* symbol = find(table, name);
  if (symbol == nullptr) return nullptr;
  void* address = reinterpret_cast<void*>(library.l_addr + symbol->st_value);
  // An indirect function (memcpy and friends) names a resolver instead.
  if (ELF64_ST_TYPE(symbol->st_info) == STT_GNU_IFUNC) {
    return reinterpret_cast<void* (*)()>(address)();
  }
  return address;
}

const link_map* map_of(const void* address) {
  Dl_info info;
  link_map* map = nullptr;
  if (dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0) return nullptr;
  return map;
}

// One more than the last index of a table of symbols, of which the hash table knows the exported
// ones: the end of the chain that begins last.
uint32_t end_of_symbols(const SymbolTable& table) {
  const uint32_t bucket_count = table.hash[0], first_symbol = table.hash[1];
  const uint32_t* buckets =
      table.hash + 4 + table.hash[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t* chains = buckets + bucket_count;
  uint32_t last = 0;
  for (uint32_t i = 0; i < bucket_count; ++i) last = buckets[i] > last ? buckets[i] : last;
  if (last < first_symbol) return 0;
  while ((chains[last - first_symbol] & 1) == 0) ++last;
  return last + 1;
}

}  // namespace

bool needs_library(const void* address, const char* library) {
  const link_map* map = map_of(address);
  if (map == nullptr) return false;
  const char* strings = nullptr;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_STRTAB)
      strings = reinterpret_cast<const char*>(address_of(*map, *entry));
  }
  if (strings == nullptr) return false;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_NEEDED && same_text(strings + entry->d_un.d_val, library)) return true;
  }
  return false;
}

void each_unversioned_function(const void* inside,
                               void (*each)(const char* name, void* address, void* context),
                               void* context) {
  const link_map* map = map_of(inside);
  if (map == nullptr) return;
  const SymbolTable table(*map);
  if (!table.complete()) return;
  const uint32_t end = end_of_symbols(table);
  for (uint32_t i = table.hash[1]; i < end; ++i) {
    const ElfW(Sym)& symbol = table.symbols[i];
    if (symbol.st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol.st_info) != STT_FUNC ||
        table.versions[i] != kNoVersion)
      continue;
    each(table.strings + symbol.st_name, reinterpret_cast<void*>(map->l_addr + symbol.st_value),
         context);
  }
}

void* libc_symbol(const char* name) {
  for (const char* part : kLibcParts) {
    const link_map* library = find_library(part);
    void* symbol = library != nullptr ? symbol_of(*library, name) : nullptr;
    if (symbol != nullptr) return symbol;
  }
  return nullptr;
}

const char* library_name(const void* address) {
  Dl_info info;
  link_map* map = nullptr;
  if (dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0) return "";
  const char* name = map != nullptr ? own_name(*map) : nullptr;
  if (name != nullptr) return name;
  return info.dli_fname != nullptr ? base_name(info.dli_fname) : "";
}

}  // namespace hostnic::elf
