# SPDX-License-Identifier: BSD-3-Clause
"""A hostnicd of our own, with a verbs program that holds objects, and what both take."""

import os
import re
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from e2e.programs import Unavailable, end_group, need

READY_LIMIT_S = 60
HOLD_LIMIT_S = 300
SEGMENT = "memfd:hostnic-segment"
MAPPING = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \S+ *(.*)$")


def wait_for_byte(fd, limit_s, what):
    if not select.select([fd], [], [], limit_s)[0]:
        raise Unavailable(f"{what} is not ready after {limit_s} s")


def resident(pid):
    """Bytes of main memory: (all but hostnic's segments, hostnic's segments)."""
    rest, segment, name = 0, 0, ""
    with open(f"/proc/{pid}/smaps", encoding="utf-8") as lines:
        for line in lines:
            if (mapping := MAPPING.match(line)) is not None:
                name = mapping.group(1)
            elif line.startswith("Rss:"):
                size = int(line.split()[1]) * 1024
                if SEGMENT in name:
                    segment += size
                else:
                    rest += size
    return rest, segment


def cpu_ns(pid):
    """Time on a CPU of all threads of the process that live."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text(encoding="ascii").split()[0])
    return total


class Daemon:
    """Runs within `with`; two NICs on a virtual wire unless options say otherwise."""

    def __init__(self, build, *options):
        self.build, self.options = build, options
        self.directory = Path(tempfile.mkdtemp(prefix="hostnic-bench-"))
        self.socket = self.directory / "hostnicd.sock"
        self.process, self.start_s = None, 0.0

    def __enter__(self):
        ready, theirs = os.pipe()
        start = time.monotonic()
        try:
            self.process = subprocess.Popen(
                [need(self.build / "hostnicd"), "--", "--socket", self.socket, "--ready-fd",
                 str(theirs), "--no-prompt", *self.options],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                pass_fds=[theirs], process_group=0,
                env={**os.environ, "XDG_RUNTIME_DIR": str(self.directory)})
            os.close(theirs)
            wait_for_byte(ready, READY_LIMIT_S, "hostnicd")
            self.start_s = time.monotonic() - start
            if os.read(ready, 1) != b"" and self.process.poll() is None:
                return self
            raise Unavailable("hostnicd does not start")
        except BaseException:
            self.__exit__()
            raise
        finally:
            os.close(ready)

    def __exit__(self, *_):
        if self.process is not None:
            end_group(self.process)
        shutil.rmtree(self.directory, ignore_errors=True)

    def run(self, *command):
        return [self.build / "hostnic", "run", "--socket", self.socket, "--", *command]


class Holder:
    """hostnic-pairs with so many objects on both NICs, while within `with`."""

    def __init__(self, daemon, qps, regions):
        self.command = daemon.run(need(daemon.build / "bench/e2e/hostnic-pairs"), "hold", str(qps),
                                  str(regions))
        self.process, self.pid, self.start_s = None, 0, 0.0

    def __enter__(self):
        start = time.monotonic()
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, process_group=0)
        try:
            wait_for_byte(self.process.stdout, HOLD_LIMIT_S, "hostnic-pairs hold")
            self.start_s = time.monotonic() - start
            words = self.process.stdout.readline().split()
            if len(words) != 2 or words[0] != b"ready":
                raise Unavailable("hostnic-pairs hold failed")
            self.pid = int(words[1])
            return self
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(READY_LIMIT_S)
        except subprocess.TimeoutExpired:
            end_group(self.process)
        self.process.stdout.close()
