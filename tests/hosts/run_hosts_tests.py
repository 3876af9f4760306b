#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Two hosts: two network namespaces joined by a veth pair, a hostnicd in each on its end of the
pair (a UDP socket, net_af_packet, net_af_xdp, or a socket at one end and net_af_packet at the
other), stock programs and hostnic-verify between them. Needs root; without it, or where namespaces
are not permitted, all cases are skipped."""

import atexit
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from harness import (  # noqa: E402
    Case, Ports, pair, parse, perftest_rows, require_programs, run_cases, select, verify_is_ok)
from unreliable_cases import MULTICAST_GID  # noqa: E402

VERIFY = Path("tests/apps/hostnic-verify")
ICRC = Path(__file__).resolve().parent / "icrc.py"
START_PATIENCE_S = 120
AF_XDP_DRIVER = "net_af_xdp"
AF_XDP = 44  # not in Python's socket module
UDP = "udp"
UDP6 = "udp over IPv6"
# The drivers of both ends, and the MTU of the interface. A veth with an XDP program takes no jumbo
# frames.
CABLES = ((UDP, UDP, 1500), (UDP, UDP, 9000), (UDP6, UDP6, 1500), (UDP6, UDP6, 9000),
          (UDP, "net_af_packet", 1500),
          ("net_af_packet", "net_af_packet", 1500), ("net_af_packet", "net_af_packet", 9000),
          (AF_XDP_DRIVER, AF_XDP_DRIVER, 1500))
# Those on which perftest's main rows run while one packet in a hundred is lost.
LOSSY_CABLES = ((UDP, UDP, 1500), (UDP, UDP, 9000), (UDP6, UDP6, 1500), (UDP6, UDP6, 9000))
LOSS = ["--loss", "1%"]
# A second user of net_af_packet's rings needs little; both fit beside other tests.
MEMORY_MIB = 256
# Of all its threads; looking every millisecond would be a thousand.
MAX_IDLE_WAKEUPS = 300


class CannotRun(Exception):
    """Namespaces or veth are not to be had here."""


def ip(*arguments):
    done = subprocess.run(["ip", *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotRun(f"ip {' '.join(map(str, arguments))}: {done.stderr.strip()}")


class Host:
    """One end: a namespace, its interface, and the hostnicd on it."""

    def __init__(self, build, directory, number, driver):
        self.build = self.daemon_build = build
        self.number = number
        self.driver = driver
        # Of this process, of this pair: benchmarks have two at a time.
        self.name = f"hostnic-test-{os.getpid()}-{directory.name.rpartition('-')[2]}-{number}"
        self.namespace = self.name
        self.interface = f"veth{number}"
        self.address = f"fd77::{number + 1}" if driver == UDP6 else f"10.0.0.{number + 1}"
        # How perftest's own exchange, TCP through the kernel, gets here: on the same cable. With
        # net_af_xdp the kernel gets nothing of what arrives there, so it needs another.
        shared = driver != AF_XDP_DRIVER
        self.exchange_interface = self.interface if shared else f"exchange{number}"
        self.exchange_address = f"10.0.0.{number + 1}" if shared else f"10.1.0.{number + 1}"
        self.socket = directory / f"hostnicd{number}.sock"
        self.log = directory / f"hostnicd{number}.log"
        self.runtime = directory / f"run{number}"
        self.runtime.mkdir()
        self.process = None
        self.daemon_prefix = []  # words before hostnicd's own
        self.daemon_options = []  # words behind them

    def inside(self, *command):
        return ["ip", "netns", "exec", self.namespace, *map(str, command)]

    def run(self, *command):
        return self.inside(self.build / "hostnic", "run", "--socket", self.socket, "--", *command)

    def set_up_interface(self, mtu):
        ip("-n", self.namespace, "link", "set", "lo", "up")
        ip("-n", self.namespace, "addr", "add", f"{self.exchange_address}/24", "dev",
           self.exchange_interface)
        if self.driver == UDP6:  # without looking for duplicates, which takes a second or two
            ip("-n", self.namespace, "addr", "add", f"{self.address}/64", "dev", self.interface,
               "nodad")
        ip("-n", self.namespace, "link", "set", self.exchange_interface, "up")
        ip("-n", self.namespace, "link", "set", self.interface, "mtu", mtu)
        ip("-n", self.namespace, "link", "set", self.interface, "up")

    def start_daemon(self):
        nic = (f"port=udp,ip={self.address}" if self.driver in (UDP, UDP6) else
               f"port={self.driver}0,iface={self.interface},ip={self.address}/24")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                self.inside(*self.daemon_prefix, self.daemon_build / "hostnicd", "--no-huge", "--no-telemetry", "-m",
                            MEMORY_MIB, f"--file-prefix={self.name}",
                            "--", "--nic", nic, "--socket", self.socket, *self.daemon_options),
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env={**os.environ, "XDG_RUNTIME_DIR": str(self.runtime)}, process_group=0)
        give_up = time.monotonic() + START_PATIENCE_S
        while b" ready on " not in self.log.read_bytes():
            if self.process.poll() is not None:
                raise RuntimeError(f"hostnicd ended with status {self.process.returncode}")
            if time.monotonic() > give_up:
                raise RuntimeError(f"hostnicd was not ready within {START_PATIENCE_S} s")
            time.sleep(0.05)

    def await_carrier(self):
        """The other end's XDP program, as it is attached, takes this link down for a moment."""
        give_up = time.monotonic() + START_PATIENCE_S
        while "PORT_ACTIVE" not in subprocess.run(
                self.run("ibv_devinfo"), capture_output=True, text=True, check=False).stdout:
            if time.monotonic() > give_up:
                raise RuntimeError(f"the link of hostnicd {self.number} did not come up")
            time.sleep(0.1)

    def unreachables_sent(self):
        snmp = subprocess.run(self.inside("cat", "/proc/net/snmp"), capture_output=True, text=True,
                              check=True).stdout
        names, values = (line.split() for line in snmp.splitlines() if line.startswith("Icmp:"))
        return int(dict(zip(names, values))["OutDestUnreachs"])

    def wakeups(self):
        return sum(int(line.split()[1]) for task in Path(f"/proc/{self.process.pid}/task").iterdir()
                   for line in (task / "status").read_text().splitlines()
                   if line.startswith("voluntary_ctxt_switches"))

    def stop_daemon(self):
        """None, or what went wrong with it."""
        process, self.process = self.process, None
        if process is None:
            return None
        if process.poll() is not None:
            return f"hostnicd {self.number} had ended with status {process.returncode}"
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"hostnicd {self.number} did not stop within 5 s"
        if process.returncode not in (0, -signal.SIGTERM):
            return f"hostnicd {self.number} stopped with status {process.returncode}"
        return None


    def kill_daemon(self):
        process, self.process = self.process, None
        process.kill()
        process.wait()


class Cable:
    """Both hosts and the veth pair of one driver and MTU. Always taken down, whatever happens."""

    def __init__(self, build, mtu, *drivers, options=()):
        self.mtu, self.drivers = mtu, drivers
        names = dict.fromkeys(driver.removeprefix("net_") for driver in drivers)
        self.name = ", ".join((" and ".join(names), f"MTU {mtu}",
                               *([" ".join(options).removeprefix("--")] if options else [])))
        self.directory = Path(tempfile.mkdtemp(prefix="hostnic-hosts-"))
        self.hosts = [Host(build, self.directory, number, driver)
                      for number, driver in enumerate(drivers)]
        for host in self.hosts:
            host.daemon_options = list(options)
        self.made = []

    def set_up(self):
        for host in self.hosts:
            ip("netns", "add", host.namespace)
            self.made.append(host.namespace)
        if AF_XDP_DRIVER in self.drivers:
            try:
                socket.socket(AF_XDP, socket.SOCK_RAW).close()
            except OSError as error:
                raise CannotRun(f"no XDP sockets: {error.strerror}") from None
        first, second = self.hosts
        for ends in {(first.interface, second.interface),
                     (first.exchange_interface, second.exchange_interface)}:
            ip("link", "add", ends[0], "netns", first.namespace, "type", "veth", "peer", "name",
               ends[1], "netns", second.namespace)
        for host in self.hosts:
            host.set_up_interface(self.mtu)
        if self.shows_frames():
            # A veth hands segmented sends over uncut, as no cable would: the other port sees frames.
            for host in self.hosts:
                ip("-n", host.namespace, "link", "set", host.interface, "gso_max_segs", 1)

    def shows_frames(self):
        """Whether segmented sends are cut before the veth."""
        return len(set(self.drivers)) > 1 or (UDP6 in self.drivers and self.mtu == 1500)

    def start_daemons(self):
        for host in self.hosts:
            host.start_daemon()
        for host in self.hosts:
            host.await_carrier()
        self.make_neighbours_known()

    def make_neighbours_known(self):
        """A refused connection makes the kernel know the other's link address. Else hostnicd sends
        a datagram to the discard port for that (kernel_neighbour.h), and the kernel there answers
        it."""
        for host, other in (self.hosts, self.hosts[::-1]):
            for address in {other.address, other.exchange_address}:
                subprocess.run(host.inside(
                    sys.executable, "-c",
                    f"import socket; socket.create_connection(({address!r}, 9), 5)"),
                    stderr=subprocess.DEVNULL, check=False)

    def stop_daemons(self):
        return [problem for host in self.hosts if (problem := host.stop_daemon()) is not None]

    def kernels_answers(self):
        """What the kernel had to say to packets that were for hostnicd."""
        answered = [(host.namespace, host.unreachables_sent()) for host in self.hosts]
        return [f"the kernel in {name} answered {count} packets with ICMP unreachable"
                for name, count in answered if count != 0]

    def restlessness(self):
        """Which hostnicd looks for packets without having been woken; net_af_xdp needs it."""
        if AF_XDP_DRIVER in self.drivers or any(host.process.poll() is not None
                                               for host in self.hosts):
            return []
        before = [host.wakeups() for host in self.hosts]
        time.sleep(1)
        woken = [host.wakeups() - count for host, count in zip(self.hosts, before)]
        return [f"hostnicd {host.number} had nothing to do and woke {count} times in a second"
                for host, count in zip(self.hosts, woken) if count > MAX_IDLE_WAKEUPS]

    def logs(self):
        lines = []
        for host in self.hosts:
            if host.log.exists():
                lines.append(f"--- hostnicd {host.number}")
                lines += host.log.read_text(errors="replace").splitlines()[-20:]
        return "\n".join(f"     | {line}" for line in lines)

    def take_down(self):
        self.stop_daemons()
        for namespace in self.made:
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)
        self.made = []
        shutil.rmtree(self.directory, ignore_errors=True)


def cases_over(cable, ports, seed):
    server, client = cable.hosts
    name = f"[veth, {cable.name}]"
    family = ["--ipv6"] if UDP6 in cable.drivers else []
    cases = []

    def perftest(program, title, arguments, rows, quick, slow=False):
        port = ports.next()
        command = [program, "-F", *family, *arguments, "-p", str(port)]
        cases.append(Case(
            f"{title} {name}",
            pair(port, server.run(*command), client.run(*command, server.exchange_address)), 180, quick,
            perftest_rows(rows), slow=slow))

    def verify(title, arguments, quick):
        port = ports.next()
        common = ["--seed", seed, "--timeout-seconds", 30, *arguments]
        cases.append(Case(
            f"hostnic-verify {title} {name}",
            pair(port, server.run(cable.verify, "--listen", port, *common),
                 client.run(cable.verify, "--connect", f"{server.exchange_address}:{port}",
                            *common)), 180, quick, verify_is_ok))

    perftest("ib_write_bw", "ib_write_bw all sizes", ["-a", "-n", "20"], 23, True)
    perftest("ib_send_lat", "ib_send_lat", ["-n", "500"], 1, True)
    # perftest sleeps for two seconds before each size.
    perftest("ib_send_lat", "ib_send_lat all sizes", ["-a", "-n", "20"], 23, False, slow=True)
    perftest("ib_read_bw", "ib_read_bw", ["-n", "200"], 1, True)
    perftest("ib_read_bw", "ib_read_bw all sizes", ["-a", "-n", "20"], 23, False,
             slow=cable.mtu != 1500)
    for service in ("UC", "UD"):
        perftest("ib_send_bw", f"ib_send_bw {service}", ["-c", service, "-s", "1024", "-n", "500"], 1,
                 False, slow=True)
    if not family:  # perftest multicasts from IPv4 addresses alone
        perftest("ib_send_bw", "ib_send_bw UD multicast",
                 ["-c", "UD", "-g", "-M", MULTICAST_GID, "-n", "200", "-r", "512", "-s", "1024"], 1,
                 True)

    def rdma_cm(title, arguments, rounds, done):
        """The client asks until somebody listens. Whatever else goes wrong is no reason to ask again:
        the server serves one client."""
        ask = " ".join(arguments)
        line = (f"for i in $(seq 20); do said=$({ask} 2>&1); status=$?; "
                'test $status -ne 0 && case "$said" in *"REJECTED, error 8"*|*UNREACHABLE*) '
                'sleep 0.5; continue;; esac; '
                'break; done; printf "%s\\n" "$said"; exit $status')
        cases.append(Case(
            f"{title} {name}",
            pair(0, server.run(*rounds), client.run("sh", "-c", line)), 60, True,
            lambda output: None if done in output else f"the output does not say {done!r}"))

    def icrcs(program, arguments, sender, receiver, listener):
        """What the socket's host sends has, on the cable, the ICRCs that another implementation
        finds. (A packet socket does not see what net_af_packet sends.)"""
        port = ports.next()
        command = [program, "-F", *family, *arguments, "-p", str(port)]
        caller = sender if listener is receiver else receiver
        runs = pair(port, listener.run(*command), caller.run(*command, listener.exchange_address))
        capture = receiver.inside(sys.executable, ICRC, receiver.interface, 20, 3000)
        line = f"{shlex.join(map(str, capture))} & {shlex.join(map(str, runs))} && wait $!"
        cases.append(Case(f"ICRCs of {program} {name}", ["sh", "-c", line], 90, True,
                          lambda output: None if "3000 packets are right" in output
                          else "no 3,000 packets with right ICRCs"))

    def dissected(arguments):
        """Plain WRITEs are nothing that tshark would remark on. (It shows ICRCs, and does not check
        them.)"""
        port = ports.next()
        command = ["ib_write_bw", "-c", "UC", "-F", *family, *arguments, "-p", str(port)]
        runs = pair(port, client.run(*command), server.run(*command, client.exchange_address))
        capture = client.inside("tshark", "-i", client.interface, "-f", "udp port 4791", "-c", 2000,
                                "-a", "duration:30", "-T", "fields", "-E", "separator=|", "-e",
                                "_ws.malformed", "-e", "_ws.expert.message", "-e",
                                "infiniband.invariant.crc")
        line = (f"{shlex.join(map(str, capture))} & sleep 2; {shlex.join(map(str, runs))} && wait $!")

        def good(output):
            fields = [line.split("|")[-3:] for line in output.splitlines() if line.count("|") >= 2]
            if len(fields) < 2000 or any(not crc.startswith("0x") for *_, crc in fields):
                return f"{len(fields)} packets, of which some may be without an ICRC"
            remarks = {remark for *both, _ in fields for remark in both if remark}
            return f"tshark remarks {remarks}" if remarks else None
        cases.append(Case(f"tshark on ib_write_bw UC {name}", ["sh", "-c", line], 90, True, good,
                          skip=None if shutil.which("tshark") else "needs tshark"))

    if cable.shows_frames():
        # For as long as tshark may take to begin on a busy machine.
        dissected(["-s", "8192", "-D", "8"])
        icrcs("ib_write_bw", ["-s", "65536", "-n", "500"], server, client, client)
        icrcs("ib_read_bw", ["-s", "65536", "-n", "500"], server, client, server)
        # More than are looked at: on a busy machine the program may be sooner than who looks.
        icrcs("ib_send_bw", ["-s", "1021", "-n", "20000"], server, client, client)
    # The NICs' own addresses: connection managers meet over their cable, and nothing else.
    rdma_cm("rping", ["rping", "-c", "-a", server.address, "-C", "20", "-v"],
            ["rping", "-s", "-a", server.address, "-C", "20"], "rdma-ping-19: ")
    rdma_cm("udaddy", ["udaddy", "-s", server.address], ["udaddy", "-b", server.address],
            "return status 0")
    if family:
        group = "ff0e::ffff:239.7.8.9"
        cases.append(Case(
            f"mckey {name}",
            pair(0, server.run("mckey", "-m", group, "-b", server.address, "-C", "20"),
                 client.run("sh", "-c",
                            f"sleep 1; mckey -m {group} -b {client.address} -s -C 20")),
            60, True, lambda output: None if "return status 0" in output else "no status 0"))
    verify("all operations", ["--qps", 2, "--max-bytes", "2m"], True)
    verify("small messages, events", ["--qps", 4, "--max-bytes", "8k", "--ops", 100, "--events"],
           False)
    return cases


def lossy_cases_over(cable, ports):
    """perftest's main rows. SENDs over UC and UD are not among them: what is lost is lost, and
    perftest's receiver waits for it."""
    server, client = cable.hosts
    name = f"[veth, {cable.name}]"
    family = ["--ipv6"] if UDP6 in cable.drivers else []
    cases = []

    def row(title, command, own_gid=True, by_rdma_cm=False):
        port = ports.next()
        command = [command[0], "-F", *(family if own_gid else []), *command[1:], "-p", str(port)]
        runs = pair(port, server.run(*command), client.run(*command, server.exchange_address))
        if by_rdma_cm:
            runs = over_rdma_cm(command)
        cases.append(Case(f"{title} {name}", runs, 120, False, perftest_rows(1), slow=True))

    def over_rdma_cm(command):
        """The client starts when somebody listens; pair() knows TCP's ports only. perftest gives
        rdma_cm no IPv6 addresses. It connects twice, and its server may not listen yet when the
        second request comes, which the client does not survive: then all is done again."""
        ctl = shlex.join(map(str, [server.build / "hostnic", "ctl", "--socket", server.socket]))
        listening = f"until {ctl} show cm | grep -q listening; do sleep 0.1; done"
        ask = shlex.join([*command, "-R", server.exchange_address])
        line = shlex.join(map(str, pair(0, server.run(*command, "-R"),
                                        client.run("sh", "-c", f"{listening}; exec {ask}"))))
        return ["sh", "-c", f'said=$({line} 2>&1); done=$?; case "$said" in '
                            f'*"Failed to connect RDMA CM events"*) exec {line};; esac; '
                            'echo "$said"; exit $done']

    for program in ("ib_write_bw", "ib_send_bw", "ib_read_bw"):
        row(program, [program, "-n", "300"])
        row(f"{program} of 5 bytes", [program, "-s", "5", "-n", "2000"])
        row(f"{program} both ways, 4 queue pairs", [program, "-b", "-q", "4", "-n", "200"])
    row("ib_atomic_bw", ["ib_atomic_bw", "-n", "1000"])
    row("ib_atomic_bw CMP_AND_SWAP", ["ib_atomic_bw", "-A", "CMP_AND_SWAP", "-n", "1000"])
    row("ib_write_bw UC", ["ib_write_bw", "-c", "UC", "-n", "300"])
    for program in ("ib_write_lat", "ib_send_lat", "ib_read_lat", "ib_atomic_lat"):
        row(program, [program, "-n", "500"])
    row("ib_write_lat of 4096 bytes", ["ib_write_lat", "-s", "4096", "-n", "300"])
    row("ib_write_bw in lists", ["ib_write_bw", "-l", "8", "-n", "320"])
    row("ib_send_bw with events", ["ib_send_bw", "-e", "-n", "300"])
    row("ib_write_bw -x 0", ["ib_write_bw", "-x", "0", "-n", "300"])
    if family:  # the interface's IPv4 address
        row("ib_write_bw -x 1", ["ib_write_bw", "-x", "1", "-n", "300"], own_gid=False)
    for program in ("ib_write_bw", "ib_send_lat", "ib_read_bw"):
        row(f"{program} -R", [program, "-n", "300"], own_gid=False, by_rdma_cm=True)
    return cases


def run_over(cable, cases):
    """Exit status; sets the cable up and takes it down."""
    try:
        cable.set_up()
    except CannotRun as error:
        cable.take_down()
        for case in cases:
            case.skip = str(error)
        return run_cases(cases)
    try:
        try:
            cable.start_daemons()
        except RuntimeError as error:
            print(f"FAIL start of both hostnicds [{cable.name}]: {error}\n{cable.logs()}")
            print(f"0 passed, {len(cases)} failed")
            return 1
        status = run_cases(cases)
        problems = cable.kernels_answers() + cable.restlessness() + cable.stop_daemons()
        for problem in problems:
            print(f"FAIL {problem}")
        if status != 0 or problems:
            print(cable.logs(), flush=True)
        return 1 if problems else status
    finally:
        cable.take_down()


def main():
    options = parse(__doc__)
    for which in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(which, lambda number, _: sys.exit(128 + number))
    ports, status = Ports(), 0
    for *drivers, mtu, loss in (*((*each, ()) for each in CABLES),
                                *((*each, LOSS) for each in LOSSY_CABLES)):
        cable = Cable(options.build, mtu, *drivers, options=loss)
        atexit.register(cable.take_down)
        cable.verify = options.build / VERIFY
        cases = select(lossy_cases_over(cable, ports) if loss else
                       cases_over(cable, ports, options.seed), options)
        if options.list:
            print("\n".join(case.name for case in cases))
            continue
        if not cases:
            continue
        if os.geteuid() != 0 or shutil.which("ip") is None:
            for case in cases:
                case.skip = "needs root" if os.geteuid() != 0 else "needs ip (iproute2)"
            status |= run_cases(cases)
            continue
        require_programs(options.build, ["hostnic", "hostnicd", VERIFY])
        status |= run_over(cable, cases)
    return status


if __name__ == "__main__":
    sys.exit(main())
