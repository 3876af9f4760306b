// SPDX-License-Identifier: BSD-3-Clause
// Replaces dlopen, for plug-ins that are loaded with RTLD_DEEPBIND (Valkey's and Redis' modules):
// they would find the real libibverbs and libc before this library, and see no device. Those that
// use verbs, or bring in a library that does, are loaded without that flag; everything else is
// loaded as it would be. Compiled without sanitizers, like dlsym_hook.cc.
#include <dlfcn.h>

#include <cerrno>
#include <new>

#include "verbs-shim/base/cancellation.h"
#include "verbs-shim/base/log.h"
#include "verbs-shim/elf/imports.h"
#include "verbs-shim/elf/library_file.h"
#include "verbs-shim/elf/symbols.h"

namespace {

using Dlopen = void* (*)(const char*, int);
using Dlsym = void* (*)(void*, const char*);

void* no_dlopen(const char*, int) { return nullptr; }

}  // namespace

// The function to which the entry sequence below jumps.
extern "C" [[gnu::visibility("hidden")]] Dlopen hostnic_next_dlopen;
Dlopen hostnic_next_dlopen = nullptr;

// Finds the next dlopen behind this library, which may be a sanitizer's.
static void resolve() {
  if (__atomic_load_n(&hostnic_next_dlopen, __ATOMIC_ACQUIRE) != nullptr) return;
  const auto real_dlsym = reinterpret_cast<Dlsym>(hostnic::elf::libc_symbol("dlsym"));
  void* next = real_dlsym != nullptr ? real_dlsym(RTLD_NEXT, "dlopen") : nullptr;
  if (next == nullptr) next = hostnic::elf::libc_symbol("dlopen");
  __atomic_store_n(&hostnic_next_dlopen,
                   next != nullptr ? reinterpret_cast<Dlopen>(next) : no_dlopen, __ATOMIC_RELEASE);
}

// Returns the flags to load with.
extern "C" [[gnu::visibility("hidden"), gnu::used]] int hostnic_dlopen_flags(const char* name,
                                                                             int flags,
                                                                             const void* caller) {
  resolve();
  hostnic::elf::lead_new_imports_here();
  if ((flags & RTLD_DEEPBIND) == 0 || name == nullptr || *name == '\0') return flags;
  const int saved_errno = errno;
  const hostnic::CancellationOff cancellation_off;
  try {
    if (hostnic::elf::brings_verbs(name, caller)) {
      hostnic::log_info("%s uses verbs: loaded without RTLD_DEEPBIND", name);
      flags &= ~RTLD_DEEPBIND;
    }
  } catch (const std::bad_alloc&) {
    // Without memory for the search the library is loaded as asked, if there is memory for that.
  }
  errno = saved_errno;
  return flags;
}

// The entry is in assembly, because the real function looks at its return address to know whose run
// path and namespace count: it has to be jumped to with the program's frame in place.
#if defined(__x86_64__)
__asm__(R"(
        .text
        .globl  dlopen
        .type   dlopen, @function
dlopen:
        .cfi_startproc
        endbr64
        movq    (%rsp), %rdx
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        subq    $16, %rsp
        .cfi_adjust_cfa_offset 16
        call    hostnic_dlopen_flags
        addq    $16, %rsp
        .cfi_adjust_cfa_offset -16
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        movl    %eax, %esi
        jmp     *hostnic_next_dlopen(%rip)
        .cfi_endproc
        .size   dlopen, .-dlopen
)");
#elif defined(__aarch64__)
// hint 34: bti c, which older processors pass over.
__asm__(R"(
        .text
        .globl  dlopen
        .type   dlopen, @function
dlopen:
        .cfi_startproc
        hint    34
        stp     x29, x30, [sp, -32]!
        .cfi_adjust_cfa_offset 32
        .cfi_rel_offset x29, 0
        .cfi_rel_offset x30, 8
        str     x0, [sp, 16]
        mov     x2, x30
        bl      hostnic_dlopen_flags
        mov     w1, w0
        ldr     x0, [sp, 16]
        ldp     x29, x30, [sp], 32
        .cfi_adjust_cfa_offset -32
        .cfi_restore x29
        .cfi_restore x30
        adrp    x16, hostnic_next_dlopen
        ldr     x16, [x16, :lo12:hostnic_next_dlopen]
        br      x16
        .cfi_endproc
        .size   dlopen, .-dlopen
)");
#else
#error "dlopen_hook.cc has the entry sequences of x86-64 and aarch64: add this machine's"
#endif
