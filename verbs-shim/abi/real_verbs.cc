// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/abi/real_verbs.h"

#include <dlfcn.h>

#include <new>
#include <string>

#include "verbs-shim/elf/imports.h"
#include "verbs-shim/elf/library_file.h"
#include "verbs-shim/elf/symbols.h"

namespace hostnic::abi {

std::atomic<int> real_contexts_open{0};

namespace {

using Dlvsym = void* (*)(void*, const char*, const char*);

// Whether a symbol is ours: in this library, in another build of it that is preloaded as well, or
// in our libibverbs.so.1, which would lead here again.
bool is_ours(const void* symbol) {
  constexpr const char* kOurs = "libhostnic-verbs.so";
  return elf::starts_with(elf::library_name(symbol), kOurs) || elf::needs_library(symbol, kOurs);
}

// Loads a library of the machine's, which the program did not bring into the global scope; null:
// there is none. By its name the program's own is found, wherever it lies. Where that is ours the
// machine's is loaded by its path, which the dynamic linker does not take for the same library.
void* load(const char* name, const char* probe, const char* version, Dlvsym real_dlvsym) {
  void* library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  const void* found = library != nullptr ? real_dlvsym(library, probe, version) : nullptr;
  if (found != nullptr && !is_ours(found)) return library;
  try {
    const std::string path = elf::machine_library(name);
    library = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  } catch (const std::bad_alloc&) {
    library = nullptr;
  }
  elf::lead_new_imports_here();
  return library;
}

}  // namespace

void* machine_symbol(MachineLibrary library, const char* name, const char* version) {
  // This is libc's dlvsym, because our own hook would answer with ourselves.
  const auto real_dlvsym = reinterpret_cast<Dlvsym>(elf::libc_symbol("dlvsym"));
  if (real_dlvsym == nullptr) return nullptr;
  void* next = real_dlvsym(RTLD_NEXT, name, version);
  if (next != nullptr && !is_ours(next)) return next;
  // It is kept for ever, because contexts live in it.
  static constinit std::atomic<void*> loaded[2];
  const bool is_verbs = library == MachineLibrary::kVerbs;
  std::atomic<void*>& known = loaded[is_verbs ? 0 : 1];
  void* handle = known.load(std::memory_order_acquire);
  if (handle == nullptr) {
    handle = is_verbs
                 ? load("libibverbs.so.1", "ibv_get_device_list", "IBVERBS_1.1", real_dlvsym)
                 : load("librdmacm.so.1", "rdma_create_event_channel", "RDMACM_1.0", real_dlvsym);
    known.store(handle, std::memory_order_release);
  }
  return handle != nullptr ? real_dlvsym(handle, name, version) : nullptr;
}

void* real_verbs_symbol(const char* name, const char* version) {
  return machine_symbol(MachineLibrary::kVerbs, name, version);
}

int real_query_gid_type(ibv_context* context, uint8_t port, unsigned int index, uint32_t* type) {
  using Function = int (*)(ibv_context*, uint8_t, unsigned int, uint32_t*);
  void* found = nullptr;
  for (const char* version : {"IBVERBS_PRIVATE_34", "IBVERBS_PRIVATE_57", "IBVERBS_PRIVATE_59",
                              "IBVERBS_PRIVATE_64", "IBVERBS_PRIVATE_65"}) {
    if (found == nullptr) found = real_verbs_symbol("ibv_query_gid_type", version);
  }
  const auto function = reinterpret_cast<Function>(found);
  if (function == nullptr || real_contexts_open.load() == 0) {
    errno = EINVAL;
    return -1;
  }
  return function(context, port, index, type);
}

}  // namespace hostnic::abi
