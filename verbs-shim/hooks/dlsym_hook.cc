// SPDX-License-Identifier: BSD-3-Clause
// Replaces dlsym and dlvsym: programs that look verbs up in a handle of libibverbs (NCCL, ctypes)
// get ours, and those that look for the program's munmap, brk and the like to write a jump over
// their code (UCX) get libc's, for ours are not those that free calls. Compiled without sanitizers:
// their runtimes call dlsym before they are ready.
//
// libhostnic-calls.so has this file, too (HOSTNIC_IN_FRONT): its functions are those in front, and
// what it does not know the next library's dlsym answers, ours or libc's.
#include <dlfcn.h>

#include <initializer_list>

#include "verbs-shim/elf/imports.h"
#include "verbs-shim/elf/symbols.h"

namespace {

using hostnic::elf::libc_symbol;
using hostnic::elf::library_name;
using hostnic::elf::same_text;
using hostnic::elf::starts_with;

#ifdef HOSTNIC_IN_FRONT
constexpr bool kTracing = true;
#else
constexpr bool kTracing = false;
#endif

using Dlsym = void* (*)(void*, const char*);
using Dlvsym = void* (*)(void*, const char*, const char*);

void* no_dlsym(void*, const char*) { return nullptr; }
void* no_dlvsym(void*, const char*, const char*) { return nullptr; }

bool is_verb(const char* name) {
  return name != nullptr && (starts_with(name, "ibv_") || starts_with(name, "_ibv_") ||
                             (kTracing && starts_with(name, "rdma_")));
}

const void* base_of(const void* address) {
  Dl_info info;
  return dladdr(address, &info) != 0 ? info.dli_fbase : nullptr;
}

// A handle for this library itself.
void* own_handle() {
  // This is no guarded static, because the thread that looks waits for the dynamic linker's lock.
  static void* known = nullptr;
  void* handle = __atomic_load_n(&known, __ATOMIC_ACQUIRE);
  if (handle != nullptr) return handle;
  Dl_info info;
  const auto* inside = reinterpret_cast<const void*>(&own_handle);
  if (dladdr(inside, &info) == 0) return nullptr;
  handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  __atomic_store_n(&known, handle, __ATOMIC_RELEASE);
  return handle;
}

// Returns `ours`, or null where the handle led on to a library that we depend on.
void* if_in_this_library(void* ours) {
  if (ours == nullptr) return nullptr;
  return base_of(ours) == base_of(reinterpret_cast<const void*>(&own_handle)) ? ours : nullptr;
}

// Whether the program asked the real libibverbs; wheels of Python bring one along under a name of
// its own, libibverbs-HASH. RTLD_NEXT is for those that wrap what comes behind them: they get that.
bool asks_libibverbs(void* handle, const void* theirs) {
  if (handle == RTLD_NEXT || theirs == nullptr) return false;
  const char* name = library_name(theirs);
  if (kTracing && (starts_with(name, "libhostnic-verbs.so") || starts_with(name, "librdmacm")))
    return true;
  return starts_with(name, "libibverbs.so") || starts_with(name, "libibverbs-");
}

}  // namespace

// The functions to which the entry sequences below jump.
extern "C" [[gnu::visibility("hidden")]] Dlsym hostnic_real_dlsym;
extern "C" [[gnu::visibility("hidden")]] Dlvsym hostnic_real_dlvsym;
Dlsym hostnic_real_dlsym = nullptr;
Dlvsym hostnic_real_dlvsym = nullptr;

static void resolve() {
  if (__atomic_load_n(&hostnic_real_dlvsym, __ATOMIC_ACQUIRE) != nullptr) return;
  auto* real_dlsym = reinterpret_cast<Dlsym>(libc_symbol("dlsym"));
  auto* real_dlvsym = reinterpret_cast<Dlvsym>(libc_symbol("dlvsym"));
  if (kTracing && real_dlsym != nullptr) {
    real_dlvsym = reinterpret_cast<Dlvsym>(real_dlsym(RTLD_NEXT, "dlvsym"));
    real_dlsym = reinterpret_cast<Dlsym>(real_dlsym(RTLD_NEXT, "dlsym"));
  }
  if (real_dlsym == nullptr) real_dlsym = no_dlsym;
  if (real_dlvsym == nullptr) real_dlvsym = no_dlvsym;
  __atomic_store_n(&hostnic_real_dlsym, real_dlsym, __ATOMIC_RELEASE);
  __atomic_store_n(&hostnic_real_dlvsym, real_dlvsym, __ATOMIC_RELEASE);
}

// Returns libc's function where the program's is our interposer; else null.
static void* libc_function_behind(void* handle, const char* name) {
  if (handle != RTLD_DEFAULT || name == nullptr) return nullptr;
  for (const char* interposed :
       {"mmap", "mmap64", "munmap", "mremap", "madvise", "brk", "sbrk", "shmat", "shmdt"}) {
    if (!same_text(name, interposed)) continue;
    const void* found = if_in_this_library(hostnic_real_dlsym(handle, name));
    return found != nullptr ? libc_symbol(name) : nullptr;
  }
  return nullptr;
}

// Returns the answer to give instead of the real function's; null: let that answer.
extern "C" [[gnu::visibility("hidden"), gnu::used]] void* hostnic_dlsym_answer(void* handle,
                                                                               const char* name) {
  resolve();
  hostnic::elf::lead_new_imports_here();
  if (void* behind = libc_function_behind(handle, name)) return behind;
  if (!is_verb(name) || handle == RTLD_NEXT) return nullptr;
  if (!asks_libibverbs(handle, hostnic_real_dlsym(handle, name))) return nullptr;
  return if_in_this_library(hostnic_real_dlsym(own_handle(), name));
}

extern "C" [[gnu::visibility("hidden"), gnu::used]] void* hostnic_dlvsym_answer(
    void* handle, const char* name, const char* version) {
  resolve();
  hostnic::elf::lead_new_imports_here();
  if (!is_verb(name) || handle == RTLD_NEXT) return nullptr;
  if (!asks_libibverbs(handle, hostnic_real_dlvsym(handle, name, version))) return nullptr;
  // A traced function has no version.
  if (kTracing) return if_in_this_library(hostnic_real_dlsym(own_handle(), name));
  return if_in_this_library(hostnic_real_dlvsym(own_handle(), name, version));
}

// The entries are in assembly, because the real functions look at their return address to know
// whose "next" RTLD_NEXT means: they have to be jumped to with the program's frame in place, at
// every optimisation level.
__asm__(
#if defined(__x86_64__)
    R"(
        .macro  answered_or_real entry, answer, real
        .globl  \entry
        .type   \entry, @function
\entry:
        .cfi_startproc
        endbr64
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        call    \answer
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        testq   %rax, %rax
        jnz     1f
        jmp     *\real\()(%rip)
1:      ret
        .cfi_endproc
        .size   \entry, .-\entry
        .endm
)"
#elif defined(__aarch64__)
    // hint 34: bti c, which older processors pass over.
    R"(
        .macro  answered_or_real entry, answer, real
        .globl  \entry
        .type   \entry, @function
\entry:
        .cfi_startproc
        hint    34
        stp     x29, x30, [sp, -48]!
        .cfi_adjust_cfa_offset 48
        .cfi_rel_offset x29, 0
        .cfi_rel_offset x30, 8
        stp     x0, x1, [sp, 16]
        str     x2, [sp, 32]
        bl      \answer
        mov     x16, x0
        ldp     x0, x1, [sp, 16]
        ldr     x2, [sp, 32]
        ldp     x29, x30, [sp], 48
        .cfi_adjust_cfa_offset -48
        .cfi_restore x29
        .cfi_restore x30
        cbnz    x16, 1f
        adrp    x16, \real
        ldr     x16, [x16, :lo12:\real]
        br      x16
1:      mov     x0, x16
        ret
        .cfi_endproc
        .size   \entry, .-\entry
        .endm
)"
#else
#error "dlsym_hook.cc has the entry sequences of x86-64 and aarch64: add this machine's"
#endif
    // dlsym has one argument less, whose register its entry keeps all the same.
    R"(
        .text
        answered_or_real dlsym, hostnic_dlsym_answer, hostnic_real_dlsym
        answered_or_real dlvsym, hostnic_dlvsym_answer, hostnic_real_dlvsym
        .purgem answered_or_real
)");
