# SPDX-License-Identifier: BSD-3-Clause
"""Huge pages of 2 MB for a test, as root: reserved, and given back whatever happens."""

import contextlib
import fcntl
import os
import signal
import time
from pathlib import Path

POOL = Path("/sys/kernel/mm/hugepages/hugepages-2048kB")
LOCK = Path("/run/hostnic-test-huge-pages.lock")
PATIENCE_S = 5
COMPACT = Path("/proc/sys/vm/compact_memory")
# The exit status that says that the command was not run, for want of huge pages.
NOT_GRANTED_STATUS = 77


def count(name):
    path = POOL / name
    return int(path.read_text()) if path.exists() else 0


def may_reserve():
    return os.geteuid() == 0 and os.access(POOL / "nr_hugepages", os.W_OK)


class NotGranted(Exception):
    """The machine has too little memory in one piece, or the kernel refuses."""


def interrupted(number, _frame):
    raise SystemExit(128 + number)


def reserve(pages):
    """How many of so many more the kernel grants, once more after it has put memory together, which fragments."""
    before = count("nr_hugepages")
    for compact in (False, True):
        if compact:
            with contextlib.suppress(OSError):
                COMPACT.write_text("1")
        (POOL / "nr_hugepages").write_text(str(before + pages))
        if count("nr_hugepages") >= before + pages:
            break
    return count("nr_hugepages") - before


@contextlib.contextmanager
def reserved(pages, least=None):
    """So many more than there are, or `least` where the kernel grants no more; one test at a time."""
    handlers = {n: signal.signal(n, interrupted) for n in (signal.SIGTERM, signal.SIGHUP)}
    with open(LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = count("nr_hugepages")
        try:
            if (granted := reserve(pages)) < (least or pages):
                raise NotGranted(f"{least or pages} huge pages are wanted, {granted} granted")
            yield
        finally:
            # Those of processes that are just ending are given back a moment later.
            end = time.monotonic() + PATIENCE_S
            while True:
                (POOL / "nr_hugepages").write_text(str(before))
                if count("nr_hugepages") <= before or time.monotonic() > end:
                    break
                time.sleep(0.05)
            for number, handler in handlers.items():
                signal.signal(number, handler)


if __name__ == "__main__":
    import subprocess
    import sys

    # huge_pages.py PAGES[:LEAST] COMMAND
    wanted, _, fewest = sys.argv[1].partition(":")
    try:
        with reserved(int(wanted), int(fewest or wanted)):
            sys.exit(subprocess.run(sys.argv[2:], check=False).returncode)
    except (NotGranted, OSError) as error:
        print(f"huge pages: {error}", file=sys.stderr)
        sys.exit(NOT_GRANTED_STATUS)
