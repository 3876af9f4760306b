# SPDX-License-Identifier: BSD-3-Clause
"""Guests whose files are this machine's, read-only, and whose first process is the script that started them, with the
same options: it runs its cases there, and what it prints is printed here."""

import ctypes
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

BEGINS, ENDS = "--- in the guest", "--- the guest ends with status "
POWER_OFF = 0x4321FEDC
LINES_OF_A_FAILURE = 20


# ---- in the guest

def set_up_tree():
    """What programs write goes to memory."""
    for kind, place in (("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"), ("tmpfs", "/run"),
                        ("tmpfs", "/var/tmp")):
        subprocess.run(["mount", "-t", kind, kind, place], check=True)
    for kind, place in (("tmpfs", "/dev/shm"), ("devpts", "/dev/pts")):
        os.makedirs(place, exist_ok=True)
        subprocess.run(["mount", "-t", kind, kind, place], check=True)
    os.symlink("/proc/self/fd", "/dev/fd")
    for directory in ("/run/netns", "/run/tmp", "/run/user"):
        os.mkdir(directory)


def be_first_process(set_up, run):
    """It never returns: the kernel would panic."""
    status = 1
    try:
        print(BEGINS, flush=True)
        set_up()
        status = run()
    except BaseException as error:  # pylint: disable=broad-except
        print(f"FAIL {type(error).__name__}: {error}")
    print(f"{ENDS}{status}", flush=True)
    ctypes.CDLL(None).reboot(POWER_OFF)


# ---- outside

class Guest:
    """Its kernel is a process of ours, and the leader of a session."""

    def __init__(self, name, limit_s, environment=()):
        self.directory = Path(tempfile.mkdtemp(prefix=f"hostnic-{name}-"))
        self.limit_s, self.environment = limit_s, list(environment)
        self.process = None

    def command(self, first):
        """Of the kernel whose first process is this program."""
        raise NotImplementedError

    def own_environment(self):
        return dict(os.environ)

    def heard(self, line):
        """Called with each line that the guest says before it is printed; true: it is not."""
        del line
        return False

    def write_first(self):
        words = [sys.executable, str(Path(sys.argv[0]).resolve()), *sys.argv[1:]]
        environment = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/run", "TERM=dumb",
                       "TMPDIR=/run/tmp", "XDG_RUNTIME_DIR=/run/user", "PYTHONDONTWRITEBYTECODE=1",
                       *self.environment]
        first = self.directory / "init"
        first.write_text(f"#!/bin/sh\ncd {shlex.quote(os.getcwd())}\nulimit -l unlimited\n"
                         f"exec env -i {shlex.join(environment)} {shlex.join(words)}\n", encoding="utf-8")
        first.chmod(0o755)
        return first

    def start(self):
        # pylint: disable=consider-using-with
        self.process = subprocess.Popen(
            [str(word) for word in self.command(self.write_first())], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, env=self.own_environment())

    def run(self):
        """Its status."""
        self.start()
        alarm = threading.Timer(self.limit_s, self.end)
        alarm.daemon = True
        alarm.start()
        said, begun = [], False
        try:
            for line in self.process.stdout:
                line = line.decode(errors="replace").rstrip()
                if line.startswith(ENDS):
                    return int(line.removeprefix(ENDS))
                if begun and not self.heard(line):
                    print(line, flush=True)
                said = [*said[1 - LINES_OF_A_FAILURE:], line]
                begun |= line == BEGINS
        finally:
            alarm.cancel()
        print("FAIL the guest has ended before its tests:", *said, sep="\n     | ")
        return 1

    def end(self):
        """By the session, which is the guest's own: a kernel that is killed may leave helpers."""
        process = self.process
        if process is not None:
            try:
                process.wait(1)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            members = subprocess.run(["ps", "-o", "pid=", "-s", str(process.pid)], capture_output=True,
                                     text=True, check=False).stdout.split()
            for member in members:
                try:
                    os.kill(int(member), signal.SIGKILL)
                except ProcessLookupError:
                    pass
        shutil.rmtree(self.directory, ignore_errors=True)
