# SPDX-License-Identifier: BSD-3-Clause
"""A hostnicd whose two NICs are on ports that DPDK drives by itself: adapters of a guest, or two ends of a link between
processes (memif, vhost-user and virtio-user), which need no guest."""

import dataclasses
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

ADDRESSES = ("10.9.0.1", "10.9.0.2")
START_PATIENCE_S = 180
STOP_PATIENCE_S = 60
# The NICs' MTU key, and the IB MTU that they then have: Ethernet's usual MTU, and jumbo frames.
USUAL, JUMBO = ("", 1024), (",mtu=4096", 4096)
ETHERNET_MTU = {1024: 1500, 4096: 4176}
MTUS = (USUAL, JUMBO)


class CannotRun(Exception):
    """hostnicd has not come up, or is gone."""


@dataclasses.dataclass(frozen=True)
class Link:
    """Two ends of a link between processes."""
    name: str
    ports: tuple  # devargs, with {directory}
    mtus: tuple = MTUS
    quick: bool = False


LINKS = (
    # The driver has no jumbo frames.
    Link("memif", ("net_memif0,role=server,id=0,socket={directory}/memif",
                   "net_memif1,role=client,id=0,socket={directory}/memif"), (USUAL,), quick=True),
    Link("vhost-user, virtio-user", ("net_vhost0,iface={directory}/vhost",
                                     "net_virtio_user0,path={directory}/vhost")),
)


class Ground:
    def __init__(self, name, build, ports, mtu, eal=()):
        self.name, self.build, self.eal = name, build, list(eal)
        self.key, self.mtu = mtu
        self.directory = Path(tempfile.mkdtemp(prefix="hostnic-pmd-"))
        self.ports = [port.format(directory=self.directory) for port in ports]
        self.socket, self.log = self.directory / "socket", self.directory / "log"
        self.daemon = None

    @property
    def title(self):
        return f"{self.name}, MTU {ETHERNET_MTU[self.mtu]}"

    def daemon_command(self, *eal):
        nics = [f"port={port},ip={address}/24{self.key}" for port, address in zip(self.ports, ADDRESSES)]
        return [self.build / "hostnicd", *self.eal, *eal, "--no-telemetry",
                f"--file-prefix=hostnic-test-{os.getpid()}-0", "--", *(word for nic in nics for word in ("--nic", nic)), "--socket", self.socket]

    def start(self):
        with open(self.log, "wb") as log:
            # pylint: disable=consider-using-with
            self.daemon = subprocess.Popen(
                [str(word) for word in self.daemon_command()], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                process_group=0, env={**os.environ, "XDG_RUNTIME_DIR": str(self.directory)})
        self.wait_for_log(" ready on ", START_PATIENCE_S)

    def log_text(self):
        return self.log.read_text(errors="replace")

    def wait_for_log(self, words, patience_s):
        give_up = time.monotonic() + patience_s
        while words not in self.log_text():
            if self.daemon.poll() is not None:
                raise CannotRun(f"hostnicd has ended with status {self.daemon.returncode}")
            if time.monotonic() > give_up:
                raise CannotRun(f"hostnicd has not said '{words.strip()}' within {patience_s} s")
            time.sleep(0.05)

    def on(self, nic, *command):
        return [self.build / "hostnic", "run", "--socket", self.socket, "--device", f"hnic{nic}", "--", *command]

    def ctl(self, command):
        done = subprocess.run([self.build / "hostnic", "ctl", "--socket", self.socket, command], capture_output=True,
                              text=True, check=False)
        if done.returncode != 0:
            raise CannotRun(f"{command}: {done.stderr.strip()}")
        return done.stdout

    def counter(self, nic, name):
        found = re.search(rf"^hnic{nic} {name} (\d+)$", self.ctl("show counters all"), re.M)
        return int(found.group(1)) if found else 0

    def stop(self):
        """None, or what went wrong with it."""
        daemon, self.daemon = self.daemon, None
        if daemon is None:
            return None
        if daemon.poll() is None:
            daemon.terminate()
        try:
            daemon.wait(STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
            return f"hostnicd did not stop within {STOP_PATIENCE_S} s"
        return f"hostnicd has ended with status {daemon.returncode}" if daemon.returncode != 0 else None

    def told(self):
        if not self.log.exists():
            return ""
        return "\n".join(f"     | {line}" for line in self.log_text().splitlines()[-20:])

    def take_down(self):
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)
