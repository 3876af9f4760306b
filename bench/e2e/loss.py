# SPDX-License-Identifier: BSD-3-Clause
"""Goodput against loss."""

from e2e.figures import Sheet, job
from e2e.lab import Lab

PERCENTS = [0, 0.1, 0.5, 1, 2, 5, 10]
QUICK_PERCENTS = [0, 1]
# A default run of some milliseconds shows each lost time slice: these take longer.
OPERATIONS = {"ib_write_bw": 1 << 20, "ib_send_bw": 65536, "ib_read_bw": 65536}


def run(bench):
    sheet = Sheet("loss", "goodput of one queue pair, loss in both directions (WRITE 1 MiB; SEND and "
                  "READ 64 KiB)", "loss", "B/s", lambda percent: f"{percent} %")
    operations = list(OPERATIONS.items())[:1 if bench.quick else None]
    for percent in QUICK_PERCENTS if bench.quick else PERCENTS:
        lab = Lab(bench.build, ["--loss", f"{percent}%"] if percent else [])
        sheet.take_turns(percent, [
            job(operation, lambda operation=operation, size=size, lab=lab:
                lab.bandwidth(operation, size)) for operation, size in operations],
            bench.repetitions)
    return [sheet]
