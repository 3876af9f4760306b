# SPDX-License-Identifier: BSD-3-Clause
"""The udp port between two network namespaces: bandwidth beside a bare program that sends and receives
segments of the same size, and beside net_af_packet; latency beside UCX over TCP on the same veth pair;
the rate of small messages."""

import os
import shutil
import subprocess
import time

from e2e import parsers, peers
from e2e.bandwidth import POST_LIST, RATE_DEPTH
from e2e.figures import Sheet, job
from e2e.ports import Cable, CannotRun
from e2e.programs import Unavailable, end_group, free_port, need, run_pair, stock, tail

MESSAGE_BYTES = 1 << 20
MESSAGES = {"udp": 4000, "net_af_packet": 500}
OPERATIONS = ["ib_write_bw", "ib_send_bw", "ib_read_bw"]
BARE = "bare sockets"
# MTU of the interface, IB MTU that fits.
MTUS = [(1500, 1024), (9000, 4096)]
BARE_PORT = 4999
BARE_SECONDS = 1.5
RECEIVE_MORE_SECONDS = 1.0
LATENCY_BYTES = 8
ROUND_TRIPS = 20_000
UCX = "ucx tag_lat, TCP"
RATE_BYTES = 64
RATE_MESSAGES = 1_000_000


def perftest(cable, program, *arguments):
    server, client = cable.hosts
    port = free_port()
    command = [stock(program, "perftest"), "-F", *arguments, "-p", port]
    return run_pair(port, server.run(*command), client.run(*command, server.exchange_address))


def bandwidth(cable, program):
    """Payload bytes per second."""
    output = perftest(cable, program, "--report_gbits", "-s", MESSAGE_BYTES,
                      "-n", MESSAGES[cable.drivers[0]])
    return parsers.perftest_bandwidth(output, MESSAGE_BYTES)[0]


def bare(cable, program, payload_bytes):
    """Payload bytes per second that arrive."""
    receiver, sender = cable.hosts
    receiving = subprocess.Popen(
        receiver.inside(program, "receive", BARE_PORT, BARE_SECONDS + RECEIVE_MORE_SECONDS),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        process_group=0)
    try:
        time.sleep(0.3)
        subprocess.run(sender.inside(program, "send", receiver.address, BARE_PORT, payload_bytes,
                                     BARE_SECONDS), check=True, timeout=30)
        output, _ = receiving.communicate(timeout=10)
        return float(output)
    except (subprocess.SubprocessError, ValueError) as error:
        end_group(receiving)
        raise Unavailable(f"udp-pair: {error}{tail(receiving.stdout.read() or '')}") from None


class Running:
    """The cable of one driver and MTU with a hostnicd at each end, while within `with`."""

    def __init__(self, bench, driver, mtu):
        self.cable = Cable(bench.build, mtu, driver, driver)

    def __enter__(self):
        try:
            self.cable.set_up()
            self.cable.start_daemons()
        except (CannotRun, RuntimeError) as error:
            self.cable.take_down()
            raise Unavailable(str(error)) from None
        return self.cable

    def __exit__(self, *_):
        self.cable.take_down()


def latency(cable, program):
    """Median in microseconds."""
    output = perftest(cable, program, "-s", LATENCY_BYTES, "-n", ROUND_TRIPS)
    return parsers.perftest_latency(output, LATENCY_BYTES)[0]


def ucx_latency(cable):
    """Median in microseconds of UCX over TCP through the same interfaces."""
    port = free_port()
    server, client = cable.hosts

    def command(host, *more):
        return host.inside(
            "env", "UCX_TLS=tcp,self", f"UCX_NET_DEVICES={host.interface}",
            *peers.ucx_command("tag_lat", LATENCY_BYTES, ROUND_TRIPS, port), "-R", 50, *more)

    return parsers.ucx_latency(run_pair(port, command(server), command(client, server.exchange_address)))


def message_rate(cable):
    """Messages per second in lists of work requests, of which the last has a completion."""
    output = perftest(cable, "ib_write_bw", "-N", "--report_gbits", "-s", RATE_BYTES, "-n", RATE_MESSAGES,
                      "-l", POST_LIST, "-t", RATE_DEPTH)
    return parsers.perftest_bandwidth(output, RATE_BYTES)[1]


def run_small(bench):
    """Latency, and the rate of small messages. The MTU is of no account."""
    mtu = MTUS[0][0]
    times = Sheet("udp-latency", f"latency over the udp port in us, {LATENCY_BYTES} bytes, half a round "
                  "trip, beside UCX over TCP on the same veth pair", "MTU", "us")
    rates = Sheet("udp-rate", f"rate of {RATE_BYTES}-byte WRITEs over the udp port in lists of {POST_LIST}",
                  "MTU", "/s")
    for program in ("ib_send_lat", "ib_write_lat"):
        times.compare(program, UCX)
    try:
        with Running(bench, "udp", mtu) as cable:
            jobs = [job(program, lambda program=program: latency(cable, program))
                    for program in ("ib_send_lat", "ib_write_lat")]
            jobs.append(job(UCX, lambda: ucx_latency(cable)))
            times.take_turns(str(mtu), jobs, bench.repetitions)
            rates.take_turns(str(mtu), [job("ib_write_bw", lambda: message_rate(cable))],
                             bench.repetitions)
    except Unavailable as error:
        times.skip(f"MTU {mtu}", error)
    return [times, rates]


def run(bench):
    if os.geteuid() != 0:
        raise Unavailable("needs root, for network namespaces")
    if shutil.which("ip") is None:
        raise Unavailable("needs ip (package iproute2)")
    pair = need(bench.build / "bench" / "e2e" / "udp-pair")
    sheet = Sheet("udp", "the udp port over veth, messages of 1 MiB, beside bare sockets with segments "
                  "of the same size, and net_af_packet", "MTU", "B/s")
    for operation in (*OPERATIONS, "af_packet"):
        sheet.compare(operation, BARE)
    for mtu, ib_mtu in MTUS[:1] if bench.quick else MTUS:
        try:
            with Running(bench, "udp", mtu) as cable, Running(bench, "net_af_packet", mtu) as raw:
                jobs = [job(BARE, lambda cable=cable, ib_mtu=ib_mtu: bare(cable, pair, ib_mtu))]
                jobs += [job(operation, lambda cable=cable, operation=operation:
                             bandwidth(cable, operation)) for operation in OPERATIONS]
                jobs += [job("af_packet", lambda raw=raw: bandwidth(raw, "ib_write_bw"))]
                sheet.take_turns(str(mtu), jobs, bench.repetitions)
        except Unavailable as error:
            sheet.skip(f"MTU {mtu}", error)
    return [sheet, *run_small(bench)]
