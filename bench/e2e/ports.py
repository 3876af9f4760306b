# SPDX-License-Identifier: BSD-3-Clause
"""Packets per second over a veth pair, beside what dpdk-testpmd moves through the same ports: one
process sends as fast as it can (txonly), the other counts (rxonly)."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from e2e import parsers
from e2e.figures import Sheet, job
from e2e.programs import PAIR_LIMIT_S, TOP, Unavailable, end_group, free_port, run_pair, stock, tail

sys.path.insert(0, str(TOP / "tests" / "lab"))
sys.path.insert(0, str(TOP / "tests" / "hosts"))
from run_hosts_tests import Cable, CannotRun  # noqa: E402

# Driver, MTU of the interface, IB MTU that fits, more arguments of the port for testpmd: those that
# hostnicd chooses. A veth with an XDP program takes no jumbo frames.
AF_PACKET = ",framesz=8192,blocksz=65536,framecnt=2048"
PORTS = [("net_af_packet", 1500, 1024, AF_PACKET), ("net_af_packet", 9000, 4096, AF_PACKET),
         ("net_af_xdp", 1500, 1024, "")]
QUICK_PORTS = PORTS[:1]
# Ethernet, IPv4, UDP, BTH, RETH, ICRC: what a packet of a WRITE has around its payload.
HEADER_BYTES = 14 + 20 + 8 + 12 + 16 + 4
MESSAGE_BYTES = 65536
MESSAGES = 24_000
MEMORY_MIB = 512
MBUF_BYTES = 9216
START_LIMIT_S = 20
SEND_SECONDS = 3.5
RECEIVE_MORE_SECONDS = 1.0


class Testpmd:
    """One dpdk-testpmd in the namespace of a host, while within `with`; it prints what it moves once
    a second."""

    def __init__(self, host, driver, more, mode, cpus, arguments=()):
        self.output = tempfile.TemporaryFile(mode="w+")
        main, forwarding = cpus
        self.command = host.inside(
            stock("dpdk-testpmd", "dpdk-dev"), "--no-huge", "--no-telemetry", "--no-pci",
            "-m", MEMORY_MIB, "-l", f"{main},{forwarding}", "--main-lcore", main,
            f"--file-prefix=hostnic-bench-{os.getpid()}-{host.number}",
            "--vdev", f"{driver}0,iface={host.interface}{more}", "--", "--auto-start",
            "--total-num-mbufs=16384", f"--mbuf-size={MBUF_BYTES if more else 2176}",
            f"--forward-mode={mode}", "--stats-period=1", *arguments)
        self.process = None

    def __enter__(self):
        self.process = subprocess.Popen(
            [str(word) for word in self.command], stdin=subprocess.DEVNULL, stdout=self.output,
            stderr=subprocess.STDOUT, process_group=0)
        give_up = time.monotonic() + START_LIMIT_S
        while "Port statistics" not in self.text():
            if self.process.poll() is not None or time.monotonic() > give_up:
                text = self.text()
                self.__exit__()
                raise Unavailable(f"dpdk-testpmd does not start{tail(text)}")
            time.sleep(0.1)
        return self

    def text(self):
        self.output.seek(0)
        return self.output.read()

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                end_group(self.process)
        self.output.close()


def testpmd_rate(bench, cable, driver, ib_mtu, more):
    """Packets per second that arrive, in the best second."""
    if len(bench.cpus) < 2:
        raise Unavailable("needs two cores")
    receiver, sender = cable.hosts
    first, second = bench.cpus[:2]
    frame = ib_mtu + HEADER_BYTES
    with Testpmd(receiver, driver, more, "rxonly", (first, second)) as counting:
        with Testpmd(sender, driver, more, "txonly", (second, first), [f"--txpkts={frame}"]):
            time.sleep(SEND_SECONDS)
        time.sleep(RECEIVE_MORE_SECONDS)
        return parsers.testpmd_rate(counting.text(), frame)


def hostnic_rate(cable, ib_mtu):
    """Packets per second of ib_write_bw: those of the messages, none that went twice."""
    server, client = cable.hosts
    try:
        cable.start_daemons()
        port = free_port()
        command = [stock("ib_write_bw", "perftest"), "-F", "-N", "--report_gbits",
                   "-s", MESSAGE_BYTES, "-n", MESSAGES, "-p", port]
        output = run_pair(port, server.run(*command), client.run(*command, server.exchange_address),
                          limit_s=PAIR_LIMIT_S)
        return parsers.perftest_bandwidth(output, MESSAGE_BYTES)[1] * (MESSAGE_BYTES // ib_mtu)
    except (RuntimeError, Unavailable) as error:
        raise Unavailable(f"{error}\n{cable.logs()}") from None
    finally:
        cable.stop_daemons()


def measure(bench, sheet, port):
    driver, mtu, ib_mtu, more = port
    cable = Cable(bench.build, mtu, driver, driver)
    try:
        cable.set_up()
        sheet.take_turns(f"{driver.removeprefix('net_')} {mtu}", [
            job("ib_write_bw", lambda: hostnic_rate(cable, ib_mtu)),
            job("testpmd", lambda: testpmd_rate(bench, cable, driver, ib_mtu, more))],
            bench.repetitions)
    except CannotRun as error:
        sheet.skip(f"{driver}, MTU {mtu}", error)
    finally:
        cable.take_down()


def run(bench):
    if os.geteuid() != 0:
        raise Unavailable("needs root, for network namespaces and packet sockets")
    if shutil.which("ip") is None:
        raise Unavailable("needs ip (package iproute2)")
    sheet = Sheet("ports", "packets per second over veth, frames of the same size: ib_write_bw, and "
                  "testpmd (what arrives in its best second)", "port, MTU", "/s")
    sheet.compare("ib_write_bw", "testpmd")
    for port in QUICK_PORTS if bench.quick else PORTS:
        measure(bench, sheet, port)
    return [sheet]
