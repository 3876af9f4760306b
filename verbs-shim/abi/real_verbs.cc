// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/abi/real_verbs.h"

#include <dlfcn.h>

#include "verbs-shim/elf/symbols.h"

namespace hostnic::abi {

std::atomic<int> real_contexts_open{0};

void* real_verbs_symbol(const char* name, const char* version) {
  // This is libc's dlvsym, because our own hook would answer with ourselves.
  using Dlvsym = void* (*)(void*, const char*, const char*);
  const auto real_dlvsym = reinterpret_cast<Dlvsym>(elf::libc_symbol("dlvsym"));
  if (real_dlvsym == nullptr) return nullptr;
  // Where this library is preloaded twice, from two builds, the other one's devices are ours again.
  void* next = real_dlvsym(RTLD_NEXT, name, version);
  if (next != nullptr && !elf::starts_with(elf::library_name(next), "libhostnic-verbs.so"))
    return next;
  // The real library is not in the global scope: it was loaded by dlopen, or not at all. It is kept
  // for ever, because contexts live in it.
  static constinit std::atomic<void*> loaded{nullptr};
  void* library = loaded.load(std::memory_order_acquire);
  if (library == nullptr) {
    library = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL);
    loaded.store(library, std::memory_order_release);
  }
  return library != nullptr ? real_dlvsym(library, name, version) : nullptr;
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
