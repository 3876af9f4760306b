/* SPDX-License-Identifier: BSD-3-Clause */
/* What one function of ours consists of, for the assembly that make_forwards.py writes: a jump to where
   hostnic_targets says, which is at first the second part, where the function's number is noted for
   hostnic_first_call (first_call.S). */
#pragma once

#if defined(__x86_64__)

.macro forward symbol, index
        .globl  \symbol
        .type   \symbol, @function
\symbol:
        .cfi_startproc
        endbr64
        jmp     *hostnic_targets+8*\index(%rip)
        .cfi_endproc
        .size   \symbol, .-\symbol
.Lfirst\index:
        .cfi_startproc
        endbr64
        pushq   $\index
        .cfi_adjust_cfa_offset 8
        jmp     hostnic_first_call
        .cfi_endproc
.endm

#elif defined(__aarch64__)

/* hint 34: bti c, which older processors pass over. */
.macro forward symbol, index
        .globl  \symbol
        .type   \symbol, @function
\symbol:
        .cfi_startproc
        hint    34
        adrp    x16, hostnic_targets+8*\index
        ldr     x16, [x16, :lo12:hostnic_targets+8*\index]
        br      x16
        .cfi_endproc
        .size   \symbol, .-\symbol
.Lfirst\index:
        .cfi_startproc
        hint    34
        mov     w17, \index
        b       hostnic_first_call
        .cfi_endproc
.endm

#else
#error "forward_entry.h has the jumps of x86-64 and aarch64: add this machine's"
#endif
