# SPDX-License-Identifier: BSD-3-Clause
"""Where hostnic meets a genuine peer: a Linux kernel with rdma_rxe as a process (a guest), whose
interface is a tap in a network namespace, and a hostnicd on the other side of that tap."""

import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

# Makes and runs the peer: build.sh, start.sh, exec.sh, stop.sh. Its kernel is patched and not ours to hand on.
SCRIPTS = Path(os.environ.get("HOSTNIC_RXE_SCRIPTS", Path(__file__).resolve().parents[3] / "shared/rxe-peer"))
DEFAULT_PEER = Path.home() / ".cache/hostnic-rxe"
PEER_FILES = ("linux", "rootfs.sqfs", "tscmhz")
HOSTNIC_ADDRESS, RXE_ADDRESS, PREFIX = "10.77.0.1", "10.77.0.2", 24
# Index 0 is the address of the link's own in the guest, 1 the IPv4 one.
RXE_GID_INDEX = 1
START_PATIENCE_S = 120
MEMORY_MIB = 256
LISTEN = "0A"


class CannotRun(Exception):
    """What this needs is not here."""


def peer_directory():
    return Path(os.environ.get("HOSTNIC_RXE_PEER", DEFAULT_PEER))


def missing():
    """None, or why there can be no such ground."""
    if os.geteuid() != 0:
        return "needs root"
    if shutil.which("ip") is None:
        return "needs ip (iproute2)"
    if not (SCRIPTS / "start.sh").exists():
        return f"no scripts for an rxe peer in {SCRIPTS}: name their folder with HOSTNIC_RXE_SCRIPTS"
    peer = peer_directory()
    if any(not (peer / name).exists() for name in PEER_FILES):
        return f"no rxe peer in {peer}: build it with {SCRIPTS}/build.sh {peer}, or name it with HOSTNIC_RXE_PEER"
    return None


def check(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotRun(f"{' '.join(map(str, command))}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


class Ground:
    """The guest, the namespace and hostnicd at one MTU of the interface. Always taken down."""

    def __init__(self, build, mtu, transport):
        self.build, self.mtu, self.transport = build, mtu, transport
        self.rdma_mtu = 4096 if mtu > 4200 else 1024
        self.peer = peer_directory().resolve()
        self.guest = f"hostnic-{os.getpid()}-{mtu}"
        self.namespace = f"hostnic-interop-{os.getpid()}-{mtu}"
        self.tap = f"rxe{mtu}"
        self.directory = Path(tempfile.mkdtemp(prefix="hostnic-interop-"))
        self.socket = self.directory / "hostnicd.sock"
        self.log = self.directory / "hostnicd.log"
        self.daemon = None

    @property
    def share(self):
        """The guest's /host."""
        return self.peer / "run" / self.guest / "share"

    def set_up(self):
        self.start_guest()
        self.start_daemon()

    def start_guest(self):
        check(SCRIPTS / "start.sh", self.peer, self.guest, "--tap", self.tap, "--ip",
              f"{RXE_ADDRESS}/{PREFIX}", "--mtu", self.mtu, "--netns", self.namespace)
        check("ip", "-n", self.namespace, "addr", "add", f"{HOSTNIC_ADDRESS}/{PREFIX}", "dev", self.tap)

    def bring(self, program):
        """Puts a program and the libraries that the guest lacks into the guest's /host."""
        shutil.copy2(program, self.share)
        for line in check("ldd", program).splitlines():
            library = re.search(r"=> (/\S*/lib(?:fmt|stdc\+\+|gcc_s|edit|ncursesw|tinfo|tomlplusplus|bsd|md)\.\S*)",
                                line)
            if library:
                shutil.copy2(library.group(1), self.share)

    def inside(self, *command):
        return ["ip", "netns", "exec", self.namespace, *map(str, command)]

    def start_daemon(self):
        nic = f"port=net_af_packet0,iface={self.tap},ip={HOSTNIC_ADDRESS}/{PREFIX}"
        if self.transport is not None:
            nic += f",transport={self.transport}"
        with open(self.log, "wb") as log:
            self.daemon = subprocess.Popen(
                self.inside(self.build / "hostnicd", "--no-huge", "--no-telemetry", "-m", MEMORY_MIB,
                            f"--file-prefix=hostnic-test-{os.getpid()}-0", "--", "--nic", nic,
                            "--socket", self.socket),
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, process_group=0,
                env={**os.environ, "XDG_RUNTIME_DIR": str(self.directory)})
        give_up = time.monotonic() + START_PATIENCE_S
        while b" ready on " not in self.log.read_bytes():
            if self.daemon.poll() is not None or time.monotonic() > give_up:
                raise CannotRun("hostnicd did not start:\n" + self.log.read_text(errors="replace"))
            time.sleep(0.05)

    # ---- commands to be run, as lists of words

    def on_hostnic(self, *command):
        return self.inside(self.build / "hostnic", "run", "--socket", self.socket, "--", *command)

    def in_guest(self, line, limit_s=120):
        """A line of shell in the guest."""
        return [SCRIPTS / "exec.sh", "--timeout", str(limit_s), self.peer, self.guest, line]

    def serving_in_guest(self, line, port, limit_s=120):
        """The same, and a file that is there when it listens on a TCP port."""
        mark = f"/host/listening-{port}"
        listening = f"grep -q '^ *[0-9]*: [0-9A-F]*:{port:04X} [0-9A-F]*:0000 {LISTEN}' /proc/net/tcp /proc/net/tcp6"
        return self.in_guest(f"{line} & p=$!; until {listening} 2> /dev/null; do kill -0 $p || break; "
                             f"sleep 0.1; done; : > {mark}; wait $p", limit_s)

    def when_listening(self, port, *command):
        """A command that starts as soon as the guest listens."""
        mark = self.share / f"listening-{port}"
        return ["sh", "-c", 'mark=$1; shift; until [ -e "$mark" ]; do sleep 0.05; done; exec "$@"', "sh",
                mark, *command]

    # ---- what the cases ask for meanwhile

    def run_in_guest(self, line, limit_s=30):
        return check(*self.in_guest(line, limit_s))

    def lose(self, percent):
        """Of the frames that leave the guest; 0: none."""
        what = f"root netem loss {percent}%" if percent else "root"
        self.run_in_guest(f"tc qdisc {'add' if percent else 'del'} dev eth0 {what}")

    def guest_lives(self):
        return subprocess.run([str(word) for word in self.in_guest("true", 20)], capture_output=True,
                              check=False).returncode == 0

    def clear_guest(self):
        """Ends what a case that failed has left in the guest: nothing but its programs is there."""
        subprocess.run([str(word) for word in self.in_guest(
            "for p in /proc/[0-9]*; do case $(readlink $p/exe) in */ib_*|*/ibv_*|*/rping|*/ucmatose|*/udaddy|"
            "*/hostnic-verify) kill -9 ${p#/proc/};; esac; done", 30)], capture_output=True, check=False)

    def counters(self):
        return subprocess.run([self.build / "hostnic", "ctl", "--socket", self.socket, "show counters"],
                              capture_output=True, text=True, check=False).stdout

    def logs(self):
        lines = self.log.read_text(errors="replace").splitlines()[-20:] if self.log.exists() else []
        console = self.peer / "run" / self.guest / "console.log"
        if console.exists():
            lines += ["--- guest", *console.read_text(errors="replace").splitlines()[-10:]]
        return "\n".join(f"     | {line}" for line in lines)

    def stop_daemon(self):
        """None, or what went wrong with it."""
        daemon, self.daemon = self.daemon, None
        if daemon is None:
            return None
        if daemon.poll() is not None:
            return f"hostnicd had ended with status {daemon.returncode}"
        daemon.terminate()
        try:
            daemon.wait(5)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
            return "hostnicd did not stop within 5 s"
        return None

    def take_down(self):
        self.stop_daemon()
        # The namespace goes with the guest, which made it.
        subprocess.run([SCRIPTS / "stop.sh", self.peer, self.guest], capture_output=True, check=False)
        shutil.rmtree(self.directory, ignore_errors=True)
