/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Register access and system call numbers: the one place that knows the processor.
 *
 * SYSCALL_NR(regs) and SYSCALL_ARG(regs, n) read `struct pt_regs` at sys_exit, where the arguments are still in place
 * (arm64 keeps the first in orig_x0, since x0 then holds the result).
 */
#ifndef ARCH_H
#define ARCH_H

#if defined(__TARGET_ARCH_x86)
#define SYSCALL_NR(regs) ((long)(regs)->orig_ax)
#define SYSCALL_ARG0(regs) ((regs)->di)
#define SYSCALL_ARG1(regs) ((regs)->si)
#define SYSCALL_ARG2(regs) ((regs)->dx)
#define SYSCALL_ARG3(regs) ((regs)->r10)
#define SYSCALL_ARG4(regs) ((regs)->r8)
#define SYSCALL_ARG5(regs) ((regs)->r9)
#elif defined(__TARGET_ARCH_arm64)
#define SYSCALL_NR(regs) ((long)(regs)->syscallno)
#define SYSCALL_ARG0(regs) ((regs)->orig_x0)
#define SYSCALL_ARG1(regs) ((regs)->regs[1])
#define SYSCALL_ARG2(regs) ((regs)->regs[2])
#define SYSCALL_ARG3(regs) ((regs)->regs[3])
#define SYSCALL_ARG4(regs) ((regs)->regs[4])
#define SYSCALL_ARG5(regs) ((regs)->regs[5])
#else
#error "expected -D__TARGET_ARCH_x86 or -D__TARGET_ARCH_arm64"
#endif

#define X32_BIT 0x40000000
#define TS_COMPAT 2
#define SIGSYS 31
#define SA_IMMUTABLE 0x00800000

#define SYSCALLS_MAX 512

#endif
