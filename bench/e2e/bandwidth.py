# SPDX-License-Identifier: BSD-3-Clause
"""Bandwidth and message rate of perftest between two NICs of a lab, beside memcpy by one thread."""

from e2e.figures import Sheet, job, show_size
from e2e.lab import Lab, memcpy
from e2e import parsers

OPERATIONS = ["ib_write_bw", "ib_send_bw", "ib_read_bw"]
SIZES = [2, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1 << 20, 8 << 20]
QUICK_SIZES = [65536, 1 << 20]
MEMCPY_SECONDS = 0.2

RATE_SIZES = [64]
POST_LIST = 64
RATE_DEPTH = 512
RATE_MESSAGES = 1_280_000


def run_bandwidth(bench):
    sheet = Sheet("bandwidth", "perftest between two NICs of a lab, one queue pair, MTU 4096, "
                  "beside memcpy by one thread", "message", "B/s", show_size)
    sheet.bounded_by("memcpy")
    modes = bench.modes()
    for name, _ in modes:
        for operation in OPERATIONS:
            sheet.compare(operation + name, "memcpy")
    scale = 0.5 if bench.quick else 1.0
    for size in bench.sizes(SIZES, QUICK_SIZES):
        jobs = [job("memcpy", lambda size=size: memcpy(bench.build, size, MEMCPY_SECONDS))]
        jobs += [job(operation + name, lambda operation=operation, size=size, options=options:
                     Lab(bench.build, options).bandwidth(operation, size, scale=scale))
                 for name, options in modes for operation in OPERATIONS]
        sheet.take_turns(size, jobs, bench.repetitions)
    return [sheet]


def message_rate(lab, program, size, count):
    """Messages per second with lists of work requests, of which the last has a completion."""
    receives = ("--recv_post_list", POST_LIST) if program == "ib_send_bw" else ()
    output = lab.perftest(program, "-N", "--report_gbits", "-s", size, "-n", count,
                          "-l", POST_LIST, "-t", RATE_DEPTH, *receives)
    return parsers.perftest_bandwidth(output, size)[1]


def run_rate(bench):
    sheet = Sheet("rate", f"message rate, lists of {POST_LIST} work requests", "message", "/s",
                  show_size)
    count = RATE_MESSAGES // (4 if bench.quick else 1)
    programs = ["ib_write_bw", "ib_send_bw"]
    for size in RATE_SIZES:
        jobs = []
        for name, options in bench.modes():
            lab = Lab(bench.build, options)
            jobs += [job(program + name, lambda lab=lab, program=program, size=size:
                         message_rate(lab, program, size, count)) for program in programs]
            if bench.quick:
                continue
            jobs += [job(f"{program}, single posts{name}", lambda lab=lab, program=program, size=size:
                         lab.bandwidth(program, size) / size) for program in programs]
        sheet.take_turns(size, jobs, bench.repetitions)
    return [sheet]
