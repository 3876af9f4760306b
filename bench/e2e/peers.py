# SPDX-License-Identifier: BSD-3-Clause
"""The programs hostnic is compared with: UCX, libfabric and iperf3, on loopback and shared
memory."""

import shutil

from e2e import parsers
from e2e.programs import execute, free_port, run_pair, stock

UCX_TCP = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"}
# All that UCX has for shared memory; it chooses by size, single copies by the kernel (CMA) included.
UCX_SHARED = {"UCX_TLS": "sm,self"}
UCX_BYTES = 1 << 30
UCX_MESSAGES = 60_000
IPERF_SECONDS = 1
MAX_IPERF_BYTES = 1 << 20  # of one write


def ucx_count(size, scale):
    return max(int(min(UCX_BYTES // size, UCX_MESSAGES) * scale), 50)


def ucx_command(test, size, count, port):
    return [stock("ucx_perftest", "ucx-utils"), "-f", "-v", "-t", test, "-s", size,
            "-n", count, "-w", max(count // 10, 5), "-p", port]


def ucx(test, size, transport, count, *arguments):
    """ucx_perftest's row."""
    port = free_port()
    command = [*ucx_command(test, size, count, port), *arguments]
    output = run_pair(port, command, [*command, "127.0.0.1"],
                      {**transport, "UCX_WARN_UNUSED_ENV_VARS": "n"})
    return output


def ucx_bandwidth(size, transport, scale=1.0):
    """Bytes per second."""
    return parsers.ucx_bandwidth(ucx("tag_bw", size, transport, ucx_count(size, scale)), size)


def ucx_latency(size, transport, count):
    """Median and 99th percentile in microseconds, of half a round trip; two runs."""
    return tuple(parsers.ucx_latency(ucx("tag_lat", size, transport, count, "-R", rank))
                 for rank in (50, 99))


def libfabric(size, provider, endpoint, count):
    """fi_pingpong: bytes per second and microseconds, of half a round trip."""
    port = free_port()
    command = [stock("fi_pingpong", "libfabric-bin"), "-p", provider, "-e", endpoint,
               "-I", count, "-S", size]
    output = run_pair(port, [*command, "-B", port], [*command, "-P", port, "127.0.0.1"])
    return parsers.fi_pingpong(output)


def iperf3(size):
    """Bytes per second of one TCP stream, written `size` bytes at a time."""
    port = free_port()
    program = stock("iperf3", "iperf3")
    output = run_pair(port, [program, "-s", "-1", "-p", port],
                      [program, "-c", "127.0.0.1", "-p", port, "-t", IPERF_SECONDS, "-l", size,
                       "-J"])
    return parsers.iperf3(output)


def versions():
    """What is compared with, by version."""
    def of(package):
        if shutil.which("dpkg-query") is None:
            return f"{package} ?"
        return execute(["dpkg-query", "-W", "-f", "${Package} ${Version}", package], 10)

    return ", ".join(of(package) for package in ("libucx0", "libfabric1", "iperf3", "perftest"))
