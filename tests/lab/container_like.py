#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Becomes a command in a place like a container's, without a container:

  container_like.py [--docker-seccomp] [--no-user-namespaces] [--shm-megabytes N] [--no-proc-sys] [--cpus N] COMMAND...

A mount namespace of its own has the /dev/shm, and an empty /proc/sys; as another user than root a user namespace is
around that. --docker-seccomp refuses what Docker's default profile refuses a container without capabilities, as Docker's
documentation and the profile list it: a list of what is refused, where the profile lists what is allowed, so that calls
that are newer than both pass here. Each restriction is looked at before the command begins: status 99 where it does not
hold.
"""

import argparse
import ctypes
import errno
import os
import platform
import struct
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 1, 2, 4, 16384, 1 << 18
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
# Numbers of x86-64.
CALLS = {
    "personality": 135, "pivot_root": 155, "_sysctl": 156, "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166,
    "swapon": 167, "swapoff": 168, "reboot": 169, "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173,
    "create_module": 174, "init_module": 175, "delete_module": 176, "get_kernel_syms": 177, "query_module": 178,
    "quotactl": 179, "nfsservctl": 180, "lookup_dcookie": 212, "clock_settime": 227, "uselib": 134, "ustat": 136,
    "sysfs": 139, "vhangup": 153, "syslog": 103, "mbind": 237, "set_mempolicy": 238, "get_mempolicy": 239,
    "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250, "migrate_pages": 256, "unshare": 272,
    "move_pages": 279, "perf_event_open": 298, "fanotify_init": 300, "open_by_handle_at": 304, "setns": 308, "kcmp": 312,
    "finit_module": 313, "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323, "io_uring_setup": 425,
    "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431,
    "fsmount": 432, "fspick": 433, "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442, "quotactl_fd": 443,
    "set_mempolicy_home_node": 450}
CLONE, CLONE3, SOCKET, PERSONALITY = 56, 435, 41, CALLS.pop("personality")
CLONE_NAMESPACES, AF_VSOCK = 0x7E020000, 40
PERSONALITIES = (0, 8, 0x20000, 0x20008, 0xFFFFFFFF)
AUDIT_ARCH_X86_64 = 0xC000003E
# Classic BPF over struct seccomp_data: number, architecture, and the low half of the first argument.
LOAD, EQUAL, AND, RETURN = 0x20, 0x15, 0x54, 0x06
NUMBER_AT, ARCHITECTURE_AT, ARGUMENT_AT = 0, 4, 16
ALLOW, REFUSE = 0x7FFF0000, 0x00050000


class Broken(Exception):
    pass


def called(result, what):
    if result < 0:
        raise Broken(f"{what}: {os.strerror(ctypes.get_errno())}")


def mount(kind, target, flags, options):
    called(LIBC.mount(kind, target, kind, ctypes.c_ulong(flags), options), f"mount on {target.decode()}")


def own_mounts():
    user, group = os.geteuid(), os.getegid()
    called(LIBC.unshare(CLONE_NEWNS | (CLONE_NEWUSER if user else 0)), "unshare")
    if user:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    mount(b"none", b"/", MS_REC | MS_PRIVATE, None)


def of_call(number, *behind):
    """Instructions that end with a verdict for this call, and go on to the next ones for others."""
    return [(EQUAL, 0, len(behind), number), *behind]


def refused(code):
    return (RETURN, 0, 0, REFUSE | code)


def docker_filter():
    program = [(LOAD, 0, 0, ARCHITECTURE_AT), (EQUAL, 1, 0, AUDIT_ARCH_X86_64), refused(errno.EPERM), (LOAD, 0, 0, NUMBER_AT)]
    for number in CALLS.values():
        program += of_call(number, refused(errno.EPERM))
    program += namespaces()
    program += of_call(SOCKET, (LOAD, 0, 0, ARGUMENT_AT), (EQUAL, 0, 1, AF_VSOCK), refused(errno.EPERM), (RETURN, 0, 0, ALLOW))
    good = [line for value in PERSONALITIES for line in ((EQUAL, 0, 1, value), (RETURN, 0, 0, ALLOW))]
    program += of_call(PERSONALITY, (LOAD, 0, 0, ARGUMENT_AT), *good, refused(errno.EPERM))
    return [*program, (RETURN, 0, 0, ALLOW)]


def namespaces():
    """No new ones by clone; of clone3, whose flags are in memory, callers go on to clone."""
    return [*of_call(CLONE, (LOAD, 0, 0, ARGUMENT_AT), (AND, 0, 0, CLONE_NAMESPACES), (EQUAL, 0, 1, 0), (RETURN, 0, 0, ALLOW),
                     refused(errno.EPERM)), *of_call(CLONE3, refused(errno.ENOSYS))]


def namespace_filter():
    return [(LOAD, 0, 0, NUMBER_AT), *of_call(CALLS["unshare"], refused(errno.EPERM)), *namespaces(), (RETURN, 0, 0, ALLOW)]


def install(program):
    code = b"".join(struct.pack("HBBI", *line) for line in program)
    buffer = ctypes.create_string_buffer(code)
    filter_ = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(program), ctypes.addressof(buffer)))
    called(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    called(LIBC.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(filter_), 0, 0), "seccomp")


def expect_refused(number, argument, code, what):
    if LIBC.syscall(number, ctypes.c_ulong(argument)) != -1 or ctypes.get_errno() != code:
        raise Broken(f"{what} is not refused")


def restrict(options):
    if options.shm_megabytes or options.no_proc_sys:
        own_mounts()
    if options.shm_megabytes:
        mount(b"tmpfs", b"/dev/shm", MS_NOSUID | MS_NODEV, f"size={options.shm_megabytes}m,mode=1777".encode())
        there = os.statvfs("/dev/shm")
        if there.f_blocks * there.f_frsize != options.shm_megabytes << 20:
            raise Broken("/dev/shm has another size")
    if options.no_proc_sys:
        mount(b"tmpfs", b"/proc/sys", MS_RDONLY | MS_NOSUID | MS_NODEV, b"size=4k,mode=555")
        if os.listdir("/proc/sys"):
            raise Broken("/proc/sys is not empty")
    if options.cpus:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:options.cpus])
    if options.docker_seccomp or options.no_user_namespaces:
        install(docker_filter() if options.docker_seccomp else namespace_filter())
        expect_refused(CALLS["unshare"], CLONE_NEWUSER, errno.EPERM, "a user namespace")
        expect_refused(CLONE, CLONE_NEWUSER | 17, errno.EPERM, "a process in a user namespace")
        expect_refused(CLONE3, 0, errno.ENOSYS, "clone3")
    if options.docker_seccomp:
        expect_refused(CALLS["userfaultfd"], 0, errno.EPERM, "userfaultfd")
        expect_refused(SOCKET, AF_VSOCK, errno.EPERM, "AF_VSOCK")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docker-seccomp", action="store_true")
    parser.add_argument("--no-user-namespaces", action="store_true")
    parser.add_argument("--shm-megabytes", type=int, default=0, metavar="N")
    parser.add_argument("--no-proc-sys", action="store_true")
    parser.add_argument("--cpus", type=int, default=0, metavar="N")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if platform.machine() != "x86_64":
        sys.exit("container_like.py: the numbers of system calls are x86-64's")
    try:
        restrict(options)
    except Broken as broken:
        print(f"container_like.py: {broken}", file=sys.stderr)
        return 99
    os.execvp(options.command[0], options.command)


if __name__ == "__main__":
    sys.exit(main())
