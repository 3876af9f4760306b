# SPDX-License-Identifier: BSD-3-Clause
"""Reads the tables of stock programs. One place knows which numbers may stand there: on a busy machine, where perftest
takes the CPU's frequency for anything or one sample is far off, a deviation is "-nan" and a rate "inf"."""

import math
import re

# What C's printf writes for a number, as a pattern without groups.
NUMBER = r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[nN][aA][nN]|[iI][nN][fF](?:[iI][nN][iI][tT][yY])?)(?![\w.])"
# size, iterations, peak and average Gb/s or MB/s, million messages per second
BANDWIDTH_COLUMNS = 5
# size, iterations, then microseconds: minimum, maximum, typical, mean, standard deviation, 99 %, 99.9 %
LATENCY_COLUMNS = 9
# size, iterations, mean microseconds, transactions per second: the shortest there is, with --duration
LEAST_COLUMNS = 4

_number = re.compile(NUMBER)


def number(text):
    """Its value, which may be NaN or infinite, or None if it is no number."""
    return float(text) if _number.fullmatch(text) else None


def is_figure(value):
    """Whether something was measured: a number that is finite and not negative."""
    return math.isfinite(value) and value >= 0


# GoogleTest's lines that say which tests failed, and where.
_FAILED_TEST = re.compile(r"^\[  FAILED  \]|: Failure$")


def tail(output, most):
    """The last lines of a failed program's output, behind those that say which tests failed: these may be far from
    the end. As many of each at most."""
    lines = output.rstrip().splitlines()
    return [line for line in lines[:-most] if _FAILED_TEST.search(line)][:most] + lines[-most:]


def perftest_rows(output, columns=None):
    """The lines of perftest's table, each as a list of numbers: size, iterations and what was measured. Only those of
    so many columns, if said."""
    rows = []
    for line in output.splitlines():
        fields = [number(field) for field in line.split()]
        if len(fields) < LEAST_COLUMNS or columns not in (None, len(fields)) or None in fields:
            continue
        # Messages have at least a byte, and were sent at least once.
        if all(math.isfinite(field) and field == int(field) and field >= 1 for field in fields[:2]):
            rows.append([int(fields[0]), int(fields[1]), *fields[2:]])
    return rows


def pingpong(output):
    """(bytes of a message, microseconds of a round trip) of an ibv_*_pingpong, or None."""
    size = re.search(r"^(\d+) bytes in ", output, re.M)
    rounds = re.search(rf"^(\d+) iters in .* = ({NUMBER}) usec/iter", output, re.M)
    if not size or not rounds or int(rounds.group(1)) == 0:
        return None
    # It counts the bytes of both directions.
    return int(size.group(1)) // int(rounds.group(1)) // 2, float(rounds.group(2))
