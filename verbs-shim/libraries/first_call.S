/* SPDX-License-Identifier: BSD-3-Clause */
/* A function's first call comes here with its number pushed, or in w17 (forward_entry.inc), asks
   hostnic_find_target() (forward.cc) and goes on there. All registers that hold arguments are kept, but
   for those of floating point, which no function of these libraries has. */
#if defined(__x86_64__)

        .text
        .globl  hostnic_first_call
        .hidden hostnic_first_call
        .type   hostnic_first_call, @function
hostnic_first_call:
        .cfi_startproc
        .cfi_adjust_cfa_offset 8
        pushq   %rax
        .cfi_adjust_cfa_offset 8
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        pushq   %rcx
        .cfi_adjust_cfa_offset 8
        pushq   %r8
        .cfi_adjust_cfa_offset 8
        pushq   %r9
        .cfi_adjust_cfa_offset 8
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        movl    64(%rsp), %edi
        call    hostnic_find_target
        movq    %rax, %r11
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        popq    %r9
        .cfi_adjust_cfa_offset -8
        popq    %r8
        .cfi_adjust_cfa_offset -8
        popq    %rcx
        .cfi_adjust_cfa_offset -8
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        popq    %rax
        .cfi_adjust_cfa_offset -8
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        jmp     *%r11
        .cfi_endproc
        .size   hostnic_first_call, .-hostnic_first_call

#elif defined(__aarch64__)

        .text
        .globl  hostnic_first_call
        .hidden hostnic_first_call
        .type   hostnic_first_call, @function
hostnic_first_call:
        .cfi_startproc
        stp     x29, x30, [sp, -96]!
        .cfi_adjust_cfa_offset 96
        .cfi_rel_offset x29, 0
        .cfi_rel_offset x30, 8
        stp     x0, x1, [sp, 16]
        stp     x2, x3, [sp, 32]
        stp     x4, x5, [sp, 48]
        stp     x6, x7, [sp, 64]
        str     x8, [sp, 80]
        mov     w0, w17
        bl      hostnic_find_target
        mov     x16, x0
        ldr     x8, [sp, 80]
        ldp     x6, x7, [sp, 64]
        ldp     x4, x5, [sp, 48]
        ldp     x2, x3, [sp, 32]
        ldp     x0, x1, [sp, 16]
        ldp     x29, x30, [sp], 96
        .cfi_adjust_cfa_offset -96
        .cfi_restore x29
        .cfi_restore x30
        br      x16
        .cfi_endproc
        .size   hostnic_first_call, .-hostnic_first_call

#else
#error "first_call.S has the call sequences of x86-64 and aarch64: add this machine's"
#endif

        .section .note.GNU-stack, "", @progbits
