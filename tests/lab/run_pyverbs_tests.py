#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""rdma-core's own Python tests, as Debian ships them (python3-pyverbs, and the tests among
rdma-core's documentation), against a lab's hnic0. Needs no root; as root they run as an ordinary
user. What they skip must be known here, with the reason why, and they must not become fewer."""

import atexit
import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import HERE, parse, require_programs

PROGRAMS = ["hostnic", "hostnicd", "libhostnic-verbs.so"]
# pyverbs is made for Debian's own Python, which need not be the one that runs this.
PYTHON = Path("/usr/bin/python3")
SUITE = Path("/usr/share/doc/rdma-core/tests")
LIMIT_S = 240

# Tests that pass, at least.
FLOOR = 100
# What tests say when they skip, and why they have to.
SKIPS = [(re.compile(pattern), why) for pattern, why in [
    (r"non MLX5 device|Could not open mlx5 context", "is about mlx5's own verbs"),
    (r"non EFA device", "is about EFA's own verbs"),
    (r"PCI device must be passed", "is about mlx5 through VFIO"),
    (r"cuda-python|GPU device ID", "needs a GPU"),
    (r"/dev/dri/|DMABUF|dma-?buf", "needs a GPU's dma-buf"),
    (r"Device memory is not supported", "the device has no memory of its own"),
    (r"doesn't have net interface", "is about rdma_cm, which needs a network interface"),
    (r"Create QP type 8|Raw Packet QP|by root on Ethernet link layer", "raw packet queue pairs are not supported"),
    (r"Create XRCD is not supported", "XRC is not supported"),
    (r"Parent Domain is not supported", "allocators of a parent domain are not supported"),
    (r"Extended CQ is not supported", "tag matching is not supported"),
    (r"Extended QP is not supported", "atomic writes are not supported"),
    (r"ODP implicit is not supported", "implicit on-demand paging is not supported"),
    (r"ODP is unavailable", "atomics on on-demand regions are not supported"),
    (r"[Hh]uge pages", "the machine has no huge pages reserved"),
    (r"Converting timestamp", "is about mlx5's clock"),
    (r"All gid indices populated", "the GID table has no empty entry"),
    (r"Importing a device", "sharing a device between processes is not supported"),
]]


def unpack(home):
    """The suite, in `home`."""
    source = SUITE
    if not source.is_dir():
        # Containers often have no documentation.
        subprocess.run(["apt-get", "download", "-q", "rdma-core"], cwd=home, check=True,
                       stdout=subprocess.DEVNULL)
        package = next(home.glob("rdma-core_*.deb"))
        subprocess.run(["dpkg-deb", "-x", package, home / "package"], check=True)
        source = home / "package" / SUITE.relative_to("/")
    shutil.copytree(source, home / "tests")
    for packed in (home / "tests").glob("*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()


def prepare(build):
    """A directory with the suite and the programs, for a user who can read nothing else."""
    home = Path(tempfile.mkdtemp(prefix="hostnic-pyverbs-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    unpack(home)
    for program in PROGRAMS:
        shutil.copy(build / program, home)
    shutil.copy(HERE / "pyverbs_suite.py", home)
    if os.geteuid() == 0:
        for path in [home, *home.rglob("*")]:
            shutil.chown(path, "nobody", "nogroup")
    home.chmod(0o755)
    return home


def command(home):
    as_nobody = [] if os.geteuid() != 0 else [
        "setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups",
        "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", "--"]
    return [*as_nobody, home / "hostnic", "lab", "--", PYTHON, home / "pyverbs_suite.py", home,
            "--dev", "hnic0"]


def run(home):
    """(exit status or None, output)."""
    environment = {**os.environ, "HOME": str(home), "TMPDIR": str(home),
                   "XDG_RUNTIME_DIR": str(home)}
    try:
        done = subprocess.run([str(word) for word in command(home)], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", env=environment, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired as late:
        return None, (late.stdout or b"").decode(errors="replace")
    return done.returncode, done.stdout


def judge(output):
    """Prints a line per test, and of what was skipped one per reason. (passed, failed)."""
    passed, failed, skipped = 0, 0, {}
    for line in output.splitlines():
        if line.startswith("ok   "):
            passed += 1
        elif found := re.match(r"skip (\S+): (.*)", line):
            why = next((why for pattern, why in SKIPS if pattern.search(found.group(2))), None)
            if why is None:
                failed += 1
                print(f"FAIL {found.group(1)}: skipped, and nobody knows why: {found.group(2)}")
            else:
                skipped[why] = skipped.get(why, 0) + 1
            continue
        elif line.startswith("FAIL "):
            failed += 1
        elif not line.startswith("     | "):
            line = f"     | {line}"
        print(line)
    for why, count in sorted(skipped.items()):
        print(f"skip {count} tests: {why}")
    return passed, failed


def main():
    options = parse(__doc__)
    require_programs(options.build, PROGRAMS)
    status, output = run(prepare(options.build))
    passed, failed = judge(output)
    problem = None
    if status is None:
        problem = f"not done after {LIMIT_S} s"
    elif status != 0 and failed == 0:
        problem = f"exit status {status}"
    elif passed < FLOOR and failed == 0:
        problem = f"{passed} tests pass, and {FLOOR} should at least"
    if problem is not None:
        failed += 1
        print(f"FAIL all tests: {problem}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
