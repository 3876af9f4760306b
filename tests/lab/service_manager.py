#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Stands for systemd: has hostnicd's socket, passes it to one hostnicd after the other, and hears
their signs of life.

  service_manager.py HOSTNICD COMMAND...

COMMAND is a program that uses the NICs. It is run beside a hostnicd, which is then killed; begun
while there is none, and served by the next one; and a hostnicd that stops asks for its end."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PATIENCE_S = 60
WATCHDOG_S = 2
# What a service manager says to the process that it makes: descriptor 3, and whose it is.
START = 'exec 3<&$PASSED; LISTEN_PID=$$ WATCHDOG_PID=$$ LISTEN_FDS=1 exec "$@"'


class Manager:
    def __init__(self, hostnicd, directory):
        self.directory = Path(directory)
        self.path = self.directory / "hostnicd.sock"
        self.listener = self.listen(self.path, socket.SOCK_SEQPACKET)
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(str(self.directory / "notify"))
        self.command = [hostnicd, "--", "--no-prompt"]

    @staticmethod
    def listen(path, kind):
        listener = socket.socket(socket.AF_UNIX, kind)
        listener.bind(str(path))
        listener.listen()
        return listener

    def start(self, passed, *more):
        descriptor = passed.fileno()
        return subprocess.Popen(["bash", "-c", START, "hostnicd", *self.command, *more], pass_fds=[descriptor],
                                stdin=subprocess.DEVNULL, env={
                                    **os.environ, "PASSED": str(descriptor), "NOTIFY_SOCKET": str(self.directory / "notify"),
                                    "WATCHDOG_USEC": str(WATCHDOG_S * 1000000), "XDG_RUNTIME_DIR": str(self.directory)})

    def hear(self, wanted):
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if select.select([self.notify], [], [], 1)[0] and self.notify.recv(100) == wanted:
                return
        sys.exit(f"hostnicd did not say {wanted}")

    def hear_all(self):
        """What has been said up to now."""
        said = []
        while select.select([self.notify], [], [], 0)[0]:
            said.append(self.notify.recv(100))
        return said


def run(manager, hostnicds, command):
    program = lambda: subprocess.Popen(command, env={**os.environ, "HOSTNIC_SOCKET": str(manager.path)})
    ends = lambda process: process.wait(PATIENCE_S) == 0 or sys.exit(f"{command[0]}: status {process.returncode}")

    hostnicds.append(manager.start(manager.listener))
    manager.hear(b"READY=1")
    ends(program())
    for _ in range(3):
        manager.hear(b"WATCHDOG=1")
    hostnicds[-1].kill()
    hostnicds[-1].wait()
    print("a program's connection is served, and hostnicd killed", flush=True)

    waiting = program()
    if not select.select([manager.listener], [], [], PATIENCE_S)[0]:
        sys.exit("the program did not connect")
    if waiting.poll() is not None:
        sys.exit("the program did not wait")
    manager.hear_all()
    hostnicds.append(manager.start(manager.listener))
    manager.hear(b"READY=1")
    ends(waiting)
    print("one that connected in between is served by the next", flush=True)

    hostnicds[-1].send_signal(signal.SIGSTOP)
    manager.hear_all()
    time.sleep(2 * WATCHDOG_S)
    if said := manager.hear_all():
        sys.exit(f"a hostnicd that stands says {said}")
    hostnicds[-1].send_signal(signal.SIGCONT)
    manager.hear(b"WATCHDOG=1")
    hostnicds[-1].terminate()
    manager.hear(b"STOPPING=1")
    if hostnicds[-1].wait(PATIENCE_S) != 0 or not manager.path.exists():
        sys.exit("hostnicd ended badly, or removed the socket")
    print("one that stands says nothing; one that ends leaves the socket", flush=True)

    with manager.listen(manager.directory / "stream", socket.SOCK_STREAM) as wrong:
        hostnicds.append(manager.start(wrong))
        if hostnicds[-1].wait(PATIENCE_S) != 1:
            sys.exit("a socket of another type was taken")


def main():
    hostnicds = []
    with tempfile.TemporaryDirectory(prefix="hostnic-service-") as directory:
        try:
            run(Manager(sys.argv[1], directory), hostnicds, sys.argv[2:])
        finally:
            for process in hostnicds:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                process.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
