# SPDX-License-Identifier: BSD-3-Clause
"""What the ways cost by which hostnicd reaches memory (docs/memory.md): messages, registration, fork; and how long
programs wait in calls with much memory registered."""

import re

from e2e import parsers
from e2e.figures import Sheet, job, print_table, show_size
from e2e.lab import Lab
from e2e.programs import Unavailable, need

# Series: what HOSTNIC_MEMORY is, and what the program has.
WAYS = {"moved": ("window", []), "shared from the start": ("file", ["shared"]), "mem fd": ("memfd", [])}
REFERENCE = "moved"
SIZES = [64, 65536, 1 << 20]
SECONDS, QUICK_SECONDS = 0.5, 0.2
COST_MIB = [1, 16, 1024]
QUICK_COST_MIB = [16]
FORK_MIB, QUICK_FORK_MIB = [16, 1024], [16]
WAITS, QUICK_WAITS = (1024, 50), (64, 5)
LIMIT_S = 300
# A call, how often, the median and the longest.
WAIT = re.compile(r"(\S.*?) +(\d+) +(\d+\.\d) +(\d+\.\d)")


def pairs(bench, way, *words):
    memory, shared = WAYS[way]
    return Lab(bench.build).run(need(bench.build / "bench/e2e/hostnic-pairs"), *words, *shared, limit_s=LIMIT_S,
                                environment={"HOSTNIC_MEMORY": memory})


def run_messages(bench):
    sheet = Sheet("ways", "WRITEs on one queue pair, both ends' memory reached in the same way", "message", "B/s",
                  show_size)
    for way in list(WAYS)[1:]:
        sheet.compare(way, REFERENCE)
    seconds = QUICK_SECONDS if bench.quick else SECONDS
    for size in bench.sizes(SIZES, SIZES):
        sheet.take_turns(size, [job(way, lambda way=way, size=size: parsers.pairs_bandwidth(
            pairs(bench, way, "write", seconds, size, 1))) for way in WAYS], bench.repetitions)
    return sheet


def run_registration(bench):
    sheet = Sheet("ways-registration", "registration and deregistration of written memory, ms", "MiB", "ms")
    for mebibytes in QUICK_COST_MIB if bench.quick else COST_MIB:
        sheet.take_turns(mebibytes, [
            job((f"register, {way}", f"deregister, {way}"),
                lambda way=way, mebibytes=mebibytes: tuple(us / 1e3 for us in parsers.named(
                    pairs(bench, way, "register", mebibytes), "registration_us")[:2])) for way in WAYS],
            bench.repetitions)
    return sheet


def run_fork(bench):
    sheet = Sheet("ways-fork", "fork of a program with so much memory, before it is registered and then, ms", "MiB",
                  "ms")
    for mebibytes in QUICK_FORK_MIB if bench.quick else FORK_MIB:
        sheet.take_turns(mebibytes, [
            job((f"before, {way}", f"registered, {way}"),
                lambda way=way, mebibytes=mebibytes: tuple(us / 1e3 for us in parsers.named(
                    pairs(bench, way, "fork", mebibytes), "fork_us"))) for way in WAYS], bench.repetitions)
    return sheet


def print_waits(bench):
    """How long a program waits in each call: a table that is no sheet, since what counts is the longest."""
    mebibytes, rounds = QUICK_WAITS if bench.quick else WAITS
    output = Lab(bench.build).run(need(bench.build / "bench/e2e/hostnic-waits"), mebibytes, rounds, limit_s=LIMIT_S)
    longest = parsers.named(output, "longest_us")[0] / 1e3
    print(f"\n-- calls of a program with {mebibytes} MiB registered, us; the longest {longest:.1f} ms\n", flush=True)
    rows = [found.groups() for line in output.splitlines() if (found := WAIT.fullmatch(line))]
    print_table(["call", "times", "median", "longest"], rows)


def run(bench):
    try:
        print_waits(bench)
    except Unavailable as error:
        print(f"   skipped: waits: {error}", flush=True)
    return [run_messages(bench), run_registration(bench), run_fork(bench)]
