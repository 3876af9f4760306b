#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A Debian tree for arm64: what hostnic is compiled against for that machine, and what a guest of it runs from. It is
fetched as packages and unpacked, nothing of it is installed, into ~/.cache/hostnic-arm64 or where HOSTNIC_ARM64 says."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from kernel_files import Archive, with_dependencies  # noqa: E402

PLACE = "HOSTNIC_ARM64"
DEFAULT_PLACE = Path.home() / ".cache/hostnic-arm64"
SUITE = "bookworm"
PACKAGES = (
    # for the compiler
    "libc6-dev", "libstdc++-12-dev", "linux-libc-dev", "libdpdk-dev", "libibverbs-dev", "librdmacm-dev", "libfmt-dev",
    "libcli11-dev", "libtomlplusplus-dev", "libncurses-dev", "libedit-dev", "libgtest-dev", "libgmock-dev", "libatomic1",
    # for the guest, which has none of /etc: no names of users or hosts
    "bash", "busybox-static", "coreutils", "dash", "findutils", "grep", "ibverbs-providers", "ibverbs-utils", "iproute2",
    "linux-image-arm64", "perftest", "procps", "python3-minimal", "rdmacm-utils", "sed", "util-linux")
# What mounts the tree, and what joins hosts of a lab.
FIRST_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "bridge", "veth")
TAG = "root"
TRIPLET = "aarch64-linux-gnu"


def place():
    return Path(os.environ.get(PLACE, DEFAULT_PLACE)).resolve()


def root():
    return place() / "root"


def image():
    return next((root() / "boot").glob("vmlinuz-*"))


def first_tree():
    return place() / "initrd"


def cross_file():
    return place() / "cross.ini"


def cross_text():
    sysroot = f"--sysroot={root()}"
    lists = "\n".join(f"{kind} = ['{sysroot}']" for kind in ("c_args", "cpp_args", "c_link_args", "cpp_link_args"))
    return f"""# Written by tests/arm64/tree.py.
[binaries]
c = '{TRIPLET}-gcc'
cpp = '{TRIPLET}-g++'
ar = '{TRIPLET}-gcc-ar'
strip = '{TRIPLET}-strip'
pkgconfig = 'pkg-config'
exe_wrapper = ['qemu-aarch64-static', '-L', '{root()}']

[built-in options]
{lists}

[properties]
sys_root = '{root()}'
pkg_config_libdir = ['{root()}/usr/lib/{TRIPLET}/pkgconfig', '{root()}/usr/share/pkgconfig']

[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'aarch64'
endian = 'little'
"""


# The guest's root is a file tree in memory with the places of Debian's tree, and the repository at its own path: both
# are this machine's, read-only. (It is not changed into by chroot, where no user namespace can be made.)
FIRST = f"""#!/bin/busybox sh
b=/bin/busybox
for module in $($b cat /modules/order); do $b insmod /modules/$module; done
$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro {TAG} /outside
$b mount -t proc proc /proc
for word in $($b cat /proc/cmdline); do
  case $word in tree=*) tree=${{word#tree=}};; repository=*) repository=${{word#repository=}};; first=*) first=${{word#first=}};; esac
done
$b mount -t tmpfs -o mode=755 tmpfs /new
for from in /outside$tree/*; do
  to=/new/${{from##*/}}
  if [ -L $from ]; then $b cp -d $from $to; else $b mkdir $to; $b mount -o bind $from $to; fi
done
$b mkdir -p /new$repository
$b mount -o bind /outside$repository /new$repository
for kind in proc:proc sysfs:sys devtmpfs:dev tmpfs:run tmpfs:tmp tmpfs:var/tmp; do
  $b mount -t ${{kind%%:*}} ${{kind%%:*}} /new/${{kind#*:}}
done
$b mkdir -p /new/dev/shm /new/dev/pts /new/run/user
$b chmod 1777 /new/tmp /new/var/tmp
$b mount -t tmpfs tmpfs /new/dev/shm
$b mount -t devpts devpts /new/dev/pts
$b cp /outside$first /new/run/first
$b umount /proc
exec $b switch_root /new /bin/bash /run/first
"""


def write_first_tree():
    archive = Archive()
    for directory in ("bin", "modules", "proc", "outside", "new"):
        archive.add(directory, Archive.DIRECTORY_MODE)
    archive.add("bin/busybox", Archive.PROGRAM_MODE, (root() / "bin/busybox").read_bytes())
    modules = with_dependencies(root() / "lib/modules", FIRST_MODULES)
    for path in modules:
        archive.add(f"modules/{path.name}", Archive.FILE_MODE, path.read_bytes())
    archive.add("modules/order", Archive.FILE_MODE, "\n".join(path.name for path in modules).encode() + b"\n")
    archive.add("init", Archive.PROGRAM_MODE, FIRST.encode())
    first_tree().write_bytes(archive.end())


def make():
    """Fetches and unpacks what is not there yet: some 350 MB, a minute or two."""
    if not root().exists():
        place().mkdir(parents=True, exist_ok=True)
        print(f"fetching Debian {SUITE} for arm64 into {place()}", flush=True)
        unfinished = place() / "root.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        subprocess.run(["mmdebstrap", "--quiet", "--variant=extract", "--architectures=arm64",
                        f"--include={','.join(PACKAGES)}", SUITE, str(unfinished)], check=True)
        unfinished.rename(root())
    cross_file().write_text(cross_text(), encoding="utf-8")
    write_first_tree()


if __name__ == "__main__":
    make()
