#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A guest without an operating system migrates from hnic1 to hnic0 by RDMA. Its memory holds a pattern, of which the
destination must have each byte."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

PATTERN_BYTES = 24 << 20
PATTERN_AT = 0x2000000
LIMIT_S = 120


class Machine:
    def __init__(self, device, name, *more):
        self.path = Path(name).resolve()
        self.log = open(f"{name}.log", "w+b")
        self.process = subprocess.Popen(
            ["hostnic", "run", "--device", device, "--", "qemu-system-x86_64", "-accel", "tcg", "-machine", "pc",
             "-m", "96", "-nodefaults", "-display", "none", "-qmp", f"unix:{name},server=on,wait=off", *more],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self.monitor = self.connect()
        self.ask("qmp_capabilities")

    def connect(self):
        give_up = time.monotonic() + LIMIT_S
        while time.monotonic() < give_up and self.process.poll() is None:
            monitor = socket.socket(socket.AF_UNIX)
            try:
                monitor.connect(str(self.path))
                monitor.settimeout(LIMIT_S)
                return monitor.makefile("rw")
            except OSError:
                time.sleep(0.05)
        sys.exit(f"{self.path.name} has no monitor")

    def ask(self, command, **arguments):
        self.monitor.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self.monitor.flush()
        for line in self.monitor:
            answer = json.loads(line)
            if "error" in answer:
                sys.exit(f"{self.path.name}: {command}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]
        sys.exit(f"{self.path.name} has ended")

    def end(self):
        self.process.kill()
        self.process.wait()
        self.log.seek(0)
        print(f"--- {self.path.name}\n{self.log.read().decode(errors='replace')}")


def migrate(source, destination, uri):
    source.ask("migrate", uri=uri)
    give_up = time.monotonic() + LIMIT_S
    while time.monotonic() < give_up:
        state = source.ask("query-migrate")
        if state.get("status") in ("completed", "failed", "cancelled"):
            break
        time.sleep(0.1)
    print(f"migration by {uri}: {state.get('status')} {state.get('error-desc', '')}")
    if state.get("status") != "completed":
        return 1
    destination.ask("pmemsave", val=PATTERN_AT, size=PATTERN_BYTES, filename=os.path.abspath("arrived"))
    if Path("arrived").read_bytes() != Path("pattern").read_bytes():
        print("the guest's memory is not what it was")
        return 1
    print("the guest's memory has arrived")
    return 0


def main():
    port = sys.argv[1]
    Path("pattern").write_bytes(os.urandom(PATTERN_BYTES))
    destination = Machine("hnic0", "destination", "-incoming", f"rdma:127.77.0.1:{port}")
    source = Machine("hnic1", "source", "-S", "-device", f"loader,file=pattern,addr={PATTERN_AT:#x},force-raw=on")
    try:
        return migrate(source, destination, f"rdma:127.77.0.1:{port}")
    finally:
        source.end()
        destination.end()


if __name__ == "__main__":
    sys.exit(main())
