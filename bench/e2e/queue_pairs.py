# SPDX-License-Identifier: BSD-3-Clause
"""Scaling over queue pairs and lcores."""

from e2e import parsers
from e2e.figures import Sheet, job
from e2e.lab import Lab
from e2e.programs import need

BYTES = 4096
COUNTS = [1, 10, 100, 1000, 10_000]
QUICK_COUNTS = [1, 10_000]
SECONDS = 0.5
LIMIT_S = 300
# What perftest does by itself: so many outstanding on each queue pair, and a completion for every so
# many. Each queue pair's messages are a multiple of the latter: it waits for one more for ever else.
PERFTEST_DEPTH, PERFTEST_COMPLETION_EACH = 128, 100
PERFTEST_MESSAGES = 3_000_000
LCORES = [1, 2]
OPERATIONS = [("ib_write_bw", 1 << 20), ("ib_write_bw", 64), ("ib_read_bw", 65536)]


def pairs_rate(bench, count):
    output = Lab(bench.build).run(need(bench.build / "bench/e2e/hostnic-pairs"), "write", SECONDS,
                                  BYTES, count, limit_s=LIMIT_S)
    return parsers.pairs_bandwidth(output)


def perftest_rate(bench, count):
    each = PERFTEST_MESSAGES // count // PERFTEST_COMPLETION_EACH * PERFTEST_COMPLETION_EACH
    output = Lab(bench.build).perftest(
        "ib_write_bw", "-N", "--report_gbits", "-s", BYTES, "-q", count, "-n", each,
        limit_s=LIMIT_S)
    return parsers.perftest_bandwidth(output, BYTES)[0]


def run_counts(bench):
    sheet = Sheet("qps", "WRITEs of 4 KiB round-robin over the queue pairs: one program with both ends "
                  "and the same 256 KiB and 256 messages outstanding whatever the number; and "
                  f"ib_write_bw, each queue pair with a buffer of its own and {PERFTEST_DEPTH} "
                  "outstanding, perftest's default", "QPs", "B/s")
    counts = QUICK_COUNTS if bench.quick else COUNTS
    programs = {"hostnic-pairs": pairs_rate}
    if not bench.quick:
        programs["ib_write_bw -q"] = perftest_rate
    jobs = []
    for name, rate in programs.items():
        sheet.compare_places(name, counts[0])
        jobs += [(count, job(name, lambda rate=rate, count=count: rate(bench, count)))
                 for count in counts]
    sheet.take_all_turns(jobs, bench.repetitions)
    return sheet


def run_lcores(bench):
    sheet = Sheet("lcores", "two NICs on so many lcores", "lcores", "B/s")
    jobs = []
    for operation, size in OPERATIONS:
        name = f"{operation} -s {size}"
        sheet.compare_places(name, LCORES[0])
        jobs += [(lcores, job(name, lambda operation=operation, size=size, lcores=lcores:
                              Lab(bench.build, ["--lcores", lcores]).bandwidth(operation, size)))
                 for lcores in LCORES]
    sheet.take_all_turns(jobs, bench.repetitions)
    return sheet


def run(bench):
    return [run_counts(bench)] if bench.quick else [run_counts(bench), run_lcores(bench)]
