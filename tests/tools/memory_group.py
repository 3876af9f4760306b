# SPDX-License-Identifier: BSD-3-Clause
"""A control group with little memory, or without further threads, of either version, for processes that tests start."""

import os
import re
import time
from pathlib import Path

TOP = Path("/sys/fs/cgroup")


class NotGranted(Exception):
    """No group can be made here, and why."""


class Group:
    """A group that is removed when its processes have ended. `limit` is the file that says what it may have."""

    def __init__(self, top, limit, limits):
        self.path = top / f"hostnic-test-{os.getpid()}"
        try:
            self.path.mkdir()
        except OSError as error:
            raise NotGranted(f"no control group can be made: {error}") from error
        if not (self.path / limit).exists():
            self.path.rmdir()
            raise NotGranted(f"control groups here don't limit {limits}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # Who has ended leaves the group a moment later.
        for _ in range(100):
            try:
                return self.path.rmdir()
            except OSError:
                time.sleep(0.1)


class MemoryGroup(Group):
    """A group with little memory."""

    def __init__(self):
        self.old = (TOP / "memory/memory.limit_in_bytes").exists()
        super().__init__(TOP / "memory" if self.old else TOP,
                         "memory.limit_in_bytes" if self.old else "memory.max", "memory")

    def take(self, pid, limit_bytes):
        """Moves a process here, which may have so much more memory from now on."""
        if self.old:
            (self.path / "memory.swappiness").write_text("0")
            (self.path / "memory.limit_in_bytes").write_text(str(limit_bytes))
        else:
            (self.path / "memory.max").write_text(str(limit_bytes))
            (self.path / "memory.swap.max").write_text("0")
        (self.path / "cgroup.procs").write_text(str(pid))

    def most_mb(self):
        """The most that its processes have had at a time, in MiB; None where the kernel doesn't say."""
        path = self.path / ("memory.max_usage_in_bytes" if self.old else "memory.peak")
        return int(path.read_text()) >> 20 if path.exists() else None

    def kills(self):
        """How many processes the limit has had killed."""
        text = (self.path / ("memory.oom_control" if self.old else "memory.events")).read_text()
        return int(re.search(r"^oom_kill (\d+)", text, re.MULTILINE)[1])


class ThreadGroup(Group):
    """A group that may be told to start no further thread."""

    def __init__(self):
        super().__init__(TOP / "pids" if (TOP / "pids").exists() else TOP, "pids.max", "threads")

    def take(self, pid):
        (self.path / "cgroup.procs").write_text(str(pid))

    def forbid(self):
        """Nothing here starts a thread or process from now on."""
        (self.path / "pids.max").write_text((self.path / "pids.current").read_text())

    def permit(self):
        (self.path / "pids.max").write_text("max")
