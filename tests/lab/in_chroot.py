#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A lab with hosts as root in a chroot, whose root directory is an ordinary one with copies of what is needed. /proc,
/sys and /dev/null are mounted in a mount namespace that ends with this program."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAMS = ["sh", "ibv_devinfo", "test", "cat"]
LAB = """
cat /where
hostnic lab --hosts 2 -- sh -c 'for host in 1 2; do hostnic on $host -- ibv_devinfo || exit 1; done
                                hostnic on 2 -- cat /where'
"""
INSIDE = """
mount -t proc proc "$0/proc" && mount -t sysfs sysfs "$0/sys" && mount --bind /dev/null "$0/dev/null" || exit 1
exec chroot "$0" /bin/sh -c "$1"
"""


def libraries_of(program):
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"(/\S+) \(0x", listed))


def make_root(root, build):
    """Where a library is found follows from its path, so that each has the same as outside."""
    for name in ("bin", "proc", "sys", "dev", "tmp", "etc", "run", "var"):
        (root / name).mkdir()
    (root / "var" / "run").symlink_to("/run")
    (root / "dev" / "null").touch()
    (root / "where").write_text("in the chroot\n")
    programs = [shutil.which(name) for name in PROGRAMS]
    programs += [build / name for name in ("hostnic", "hostnicd", "libhostnic-verbs.so")]
    # DPDK loads these by itself.
    wanted = {str(path) for path in Path("/usr/lib").glob("*/dpdk/pmds-*/librte_mempool_ring.so*")}
    for program in programs:
        shutil.copy(program, root / "bin")
        wanted |= libraries_of(program)
    for library in wanted:
        to = root / library.lstrip("/")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, to)


def main():
    build = Path(sys.argv[1]).resolve()
    root = Path(tempfile.mkdtemp(prefix="hostnic-chroot-"))
    try:
        make_root(root, build)
        environment = {"PATH": "/bin", "HOME": "/"}
        status = subprocess.run(["unshare", "-m", "sh", "-c", INSIDE, root, LAB], check=False,
                                env={**environment, "PATH": f"/bin:{os.environ['PATH']}"}).returncode
        left = [path.name for path in (root / "tmp").iterdir()]
        print("as before" if not left else f"left in its /tmp: {left}", flush=True)
        return status
    finally:
        # The mounts were of a namespace that is gone.
        subprocess.run(["rm", "-rf", "--one-file-system", root], check=True)


if __name__ == "__main__":
    sys.exit(main())
