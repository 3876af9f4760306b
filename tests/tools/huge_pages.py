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


def count(name):
    path = POOL / name
    return int(path.read_text()) if path.exists() else 0


def may_reserve():
    return os.geteuid() == 0 and os.access(POOL / "nr_hugepages", os.W_OK)


class NotGranted(Exception):
    """The machine has too little memory in one piece, or the kernel refuses."""


def interrupted(number, _frame):
    raise SystemExit(128 + number)


@contextlib.contextmanager
def reserved(pages):
    """So many more than there are; one test at a time."""
    handlers = {n: signal.signal(n, interrupted) for n in (signal.SIGTERM, signal.SIGHUP)}
    with open(LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = count("nr_hugepages")
        try:
            (POOL / "nr_hugepages").write_text(str(before + pages))
            if count("nr_hugepages") < before + pages:
                raise NotGranted(f"{pages} huge pages are wanted, {count('nr_hugepages') - before} granted")
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

    wanted = int(sys.argv[1])
    try:
        with reserved(wanted):
            sys.exit(subprocess.run(sys.argv[2:], check=False).returncode)
    except (NotGranted, OSError) as error:
        sys.exit(f"huge pages: {error}")
