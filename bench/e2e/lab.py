# SPDX-License-Identifier: BSD-3-Clause
"""perftest between the two NICs of a lab, and the one-process programs of bench/e2e in one."""

from e2e import parsers
from e2e.programs import PAIR_LIMIT_S, client_part, execute, free_port, need, pair_command, stock

# perftest wants more iterations than its queue is deep, and sends that many at once.
MAX_TX_DEPTH = 128
# What is sent for one figure: a fraction of a second at what these machines do.
BYTES = 8 << 30
MESSAGES = 200_000
MIN_MESSAGES = 200


def iterations(size, scale=1.0, at_most=MESSAGES):
    return max(int(min(BYTES // size, at_most) * scale), MIN_MESSAGES)


class Lab:
    """A lab with its options; a new one for each run."""

    def __init__(self, build, options=()):
        self.hostnic = need(build / "hostnic")
        self.build = build
        self.options = list(options)

    def knows(self, option):
        """Whether this hostnic has that option of `hostnic lab`."""
        return option in execute([self.hostnic, "lab", "--help"], PAIR_LIMIT_S)

    def run(self, *command, limit_s=PAIR_LIMIT_S, environment=None):
        return execute([self.hostnic, "lab", *self.options, "--", *command], limit_s, environment)

    def perftest(self, program, *arguments, server_prefix=(), client_prefix=(),
                 limit_s=PAIR_LIMIT_S):
        """What the client printed. hnic0 serves."""
        port = free_port()
        command = [stock(program, "perftest"), "-F", *arguments, "-p", port]
        pair = pair_command(
            port, [*server_prefix, self.hostnic, "run", "--device", "hnic0", "--", *command],
            [*client_prefix, self.hostnic, "run", "--device", "hnic1", "--", *command, "127.0.0.1"])
        return client_part(self.run(*pair, limit_s=limit_s))

    def bandwidth(self, program, size, *arguments, scale=1.0):
        """Bytes per second."""
        count = iterations(size, scale)
        depth = min(MAX_TX_DEPTH, count)
        # -N: without a time stamp for each message.
        output = self.perftest(program, "-N", "--report_gbits", "-s", size, "-n", count,
                               "-t", depth, *arguments)
        return parsers.perftest_bandwidth(output, size)[0]

    def latency(self, program, size, count, **prefixes):
        """Median and 99th percentile in microseconds."""
        sized = () if program == "ib_atomic_lat" else ("-s", size)
        output = self.perftest(program, *sized, "-n", count, **prefixes)
        return parsers.perftest_latency(output, size)


def memcpy(build, size, seconds):
    """Bytes per second."""
    output = execute([need(build / "bench" / "e2e" / "memcpy-bw"), seconds, size], PAIR_LIMIT_S)
    return parsers.memcpy_rate(output, size)
