# SPDX-License-Identifier: BSD-3-Clause
"""What cases about two hosts' network are made of: hostnic-witness at either end, changes of the
network, and what programs and hostnicds say of them."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from harness import pair  # noqa: E402
from unreliable_cases import MULTICAST_GID  # noqa: E402
from run_hosts_tests import ip  # noqa: E402

# Nothing that should happen takes longer, on any machine.
PATIENCE_S = 60
RETRY_EXC, NO_ANSWER, PATH_MTU = 12, 7, 13


class Wrong(Exception):
    """A case fails."""


def wait_for(what, condition, patience_s=PATIENCE_S):
    end = time.monotonic() + patience_s
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise Wrong(f"{what}: not within {patience_s} s")
        time.sleep(0.02)


class Witness:
    """hostnic-witness at one host, and what it has said."""

    def __init__(self, cable, host, title, *arguments):
        self.title = title
        self.path = cable.directory / f"witness-{title}-{time.monotonic_ns()}.log"
        with open(self.path, "wb") as log:
            self.process = subprocess.Popen(
                host.run(cable.witness, *arguments), stdin=subprocess.PIPE, stdout=log,
                stderr=subprocess.STDOUT, process_group=0)

    def lines(self):
        return self.path.read_text(errors="replace").splitlines()

    def seen(self, pattern, since=0):
        for line in self.lines()[since:]:
            found = re.search(pattern, line)
            if found:
                return found
        return None

    def expect(self, pattern, since=0):
        def look():
            if not self.seen(pattern, since) and self.process.poll() is not None:
                raise Wrong(f"{self.title} ended with {self.process.returncode} without '{pattern}'")
            return self.seen(pattern, since)
        return wait_for(f"{self.title} says '{pattern}'", look)

    def round(self):
        rounds = [int(line.split()[1]) for line in self.lines() if re.fullmatch(r"round \d+", line)]
        return rounds[-1] if rounds else 0

    def goes_on(self):
        """Data moves from now on."""
        before = self.round()
        self.expect_running()
        wait_for(f"{self.title}: another round after {before}", lambda: self.failed() or
                 self.round() > before + 1)
        if self.failed():
            raise Wrong(f"{self.title}: {self.failed().group(0)}")

    def failed(self):
        return self.seen(r"(failed with status|wrong byte|post refused).*")

    def expect_running(self):
        if self.failed() or self.process.poll() is not None:
            raise Wrong(f"{self.title} did not survive: {self.lines()[-1:]}")

    def fails(self, status, vendor):
        self.expect(rf"failed with status {status} .* vendor {vendor},")
        wait_for(f"{self.title} ends", lambda: self.process.poll() is not None)

    def stop(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        return self.process.returncode


class Scene:
    """The cable, the witnesses of one case, and what the hostnicds say meanwhile."""

    def __init__(self, cable, ports):
        self.cable, self.ports = cable, ports
        self.near, self.far = cable.hosts
        self.witnesses = []
        self.log_starts = {host: len(host.log.read_text(errors="replace")) for host in cable.hosts}

    def pair(self, title="", *arguments):
        """(The side that sends, at the near host; the other.)"""
        port = self.ports.next()
        passive = Witness(self.cable, self.far, f"{title}far", "--listen", port, *arguments)
        self.witnesses.append(passive)
        active = Witness(self.cable, self.near, f"{title}near", "--connect",
                         f"{self.far.exchange_address}:{port}", *arguments)
        self.witnesses.append(active)
        active.expect("connected")
        active.goes_on()
        return active, passive

    def link(self, host, *change):
        ip("-n", host.namespace, "link", "set", host.interface, *change)

    def mtu(self, bytes_):
        for host in self.cable.hosts:
            self.link(host, "mtu", bytes_)

    def address(self, host, what):
        ip("-n", host.namespace, "addr", what, f"{host.address}/24", "dev", host.interface)

    def logged(self, host, pattern):
        wait_for(f"hostnicd {host.number} logs '{pattern}'", lambda: re.search(
            pattern, host.log.read_text(errors="replace")[self.log_starts[host]:]))

    def counter(self, host, name):
        text = subprocess.run([self.cable.build / "hostnic", "ctl", "--socket", host.socket,
                               "show counters all"], capture_output=True, text=True,
                              check=True).stdout
        return int(re.search(rf"^hnic0 {name} (\d+)$", text, re.M).group(1))

    def shows(self, host, address):
        text = self.show_nic(host)
        if address not in text.rpartition(" gids ")[2].strip().split(","):
            raise Wrong(f"`show nic` names no GID {address}: {text}")

    def counts(self, host, name, action):
        before = self.counter(host, name)
        action()
        wait_for(f"{name} rises", lambda: self.counter(host, name) > before)

    def multicast(self):
        """Datagrams to a group leave by the interface that is there now."""
        port = self.ports.next()
        command = ["ib_send_bw", "-F", "-c", "UD", "-g", "-M", MULTICAST_GID, "-n", "200", "-r", "512",
                   "-s", "1024", "-p", str(port)]
        done = subprocess.run(pair(port, self.far.run(*command), self.near.run(
            *command, self.far.exchange_address)), capture_output=True, text=True, check=False,
            timeout=PATIENCE_S)
        if done.returncode != 0:
            raise Wrong(f"multicast: {done.stdout[-500:]}")

    def show_nic(self, host):
        return subprocess.run([self.cable.build / "hostnic", "ctl", "--socket", host.socket,
                               "show nic"], capture_output=True, text=True, check=True).stdout

    def stop(self):
        for witness in reversed(self.witnesses):  # who sends, before whom it sends to
            witness.stop()

    def logs(self):
        lines = []
        for witness in self.witnesses:
            lines.append(f"--- {witness.title}")
            lines += witness.lines()[-15:]
        return "\n".join(f"     | {line}" for line in lines)
