# SPDX-License-Identifier: BSD-3-Clause
"""The guests' kernel: Debian's, fetched as a package and unpacked, not installed, into ~/.cache/hostnic-pmd or where
HOSTNIC_PMD_KERNEL says; and a first file tree that mounts this machine's."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from kernel_files import Archive, with_dependencies  # noqa: E402

PACKAGE = "linux-image-amd64"
PLACE = "HOSTNIC_PMD_KERNEL"
DEFAULT_PLACE = Path.home() / ".cache/hostnic-pmd"
BUSYBOX = Path("/bin/busybox")
# What mounts the tree, and what adapters are bound to.
FIRST_MODULES = ("virtio_pci", "9pnet_virtio", "9p")
MODULES = ("uio_pci_generic", "vfio_iommu_type1", "vfio-pci")
TAG = "root"


def place():
    return Path(os.environ.get(PLACE, DEFAULT_PLACE)).resolve()


def image():
    return place() / "vmlinuz"


def first_tree():
    return place() / "initrd"


def missing():
    """None, or why there can be no guest."""
    for program in ("qemu-system-x86_64", "busybox"):
        if shutil.which(program) is None:
            return f"no {program}: ./run pmd installs it (qemu-system-x86, busybox-static)"
    if not image().exists() or not first_tree().exists():
        return f"no kernel in {place()}: ./run pmd fetches it, 70 MB"
    return None


def modules():
    """The files of those to be loaded in the guest, in their order."""
    return with_dependencies(place() / "modules", MODULES)


def write_first_tree(to, modules_directory):
    archive = Archive()
    for directory in ("bin", "modules", "proc", "root"):
        archive.add(directory, Archive.DIRECTORY_MODE)
    archive.add("bin/busybox", Archive.PROGRAM_MODE, BUSYBOX.read_bytes())
    lines = ["#!/bin/busybox sh", "b=/bin/busybox"]
    for path in with_dependencies(modules_directory, FIRST_MODULES):
        archive.add(f"modules/{path.name}", Archive.FILE_MODE, path.read_bytes())
        lines.append(f"$b insmod /modules/{path.name}")
    lines += [f"$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro {TAG} /root",
              "$b mount -t proc proc /proc",
              "for word in $($b cat /proc/cmdline); do case $word in first=*) first=${word#first=};; esac; done",
              "$b umount /proc", "exec $b switch_root /root $first"]
    archive.add("init", Archive.PROGRAM_MODE, "\n".join(lines).encode() + b"\n")
    to.write_bytes(archive.end())


def package_name():
    """Of the kernel that the empty package asks for."""
    shown = subprocess.run(["apt-cache", "depends", "--no-recommends", PACKAGE], capture_output=True, text=True,
                           check=True).stdout
    return re.search(r"Depends: (linux-image-\S+)", shown).group(1)


def make():
    """Fetches and unpacks the kernel where it is not there yet."""
    if image().exists() and first_tree().exists():
        return
    place().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place()) as directory:
        work = Path(directory)
        name = package_name()
        print(f"fetching {name} into {place()}", flush=True)
        subprocess.run(["apt-get", "download", "-q", name], cwd=work, check=True)
        subprocess.run(["dpkg-deb", "-x", *work.glob("*.deb"), work / "tree"], check=True)
        unpacked = next((work / "tree/lib/modules").iterdir())
        kept = place() / "modules"
        shutil.rmtree(kept, ignore_errors=True)
        for path in with_dependencies(unpacked, FIRST_MODULES + MODULES):
            target = kept / path.relative_to(unpacked)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(path, target)
        write_first_tree(first_tree(), kept)
        # The last one: who finds it finds all.
        shutil.move(next((work / "tree/boot").glob("vmlinuz-*")), image())


if __name__ == "__main__":
    make()
