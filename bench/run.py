#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The benchmarks, in sections: the parts of the data path (micro), then hostnic end to end beside
what else moves bytes on this machine. Each figure is the median of several runs, taken in turn with
those it is compared with. Prints tables, and leaves them as CSV in bench-results/.

`report` writes the tables and plots of docs/performance/results.md from those CSVs."""

import argparse
import dataclasses
import os
import signal
import sys
import time
from pathlib import Path

from e2e import (bandwidth, growth, latency, loss, micro, ports, programs, queue_pairs, report,
                 rivals, rxe, udp, ways)
from e2e.lab import Lab
from e2e.programs import BenchError, Unavailable

REPETITIONS = 5
QUICK_REPETITIONS = 3
MICRO_SECONDS = 0.1
QUICK_MICRO_SECONDS = 0.01
# What each measures, and its function: from the Bench to its sheets.
SECTIONS = {
    "micro": ("the parts of the data path, ns per operation", micro.run),
    "bandwidth": ("ib_write_bw, ib_send_bw, ib_read_bw beside memcpy", bandwidth.run_bandwidth),
    "rate": ("messages per second, with and without lists of work requests", bandwidth.run_rate),
    "latency": ("ib_*_lat beside UCX and libfabric over TCP; also with a polling lcore",
                latency.run),
    "qps": ("1 to 10,000 queue pairs; lcores", queue_pairs.run),
    "peers": ("bandwidth beside UCX, libfabric and iperf3", rivals.run),
    "udp": ("the udp port over veth beside bare UDP sockets (root)", udp.run),
    "ports": ("packets per second over veth beside testpmd (root)", ports.run),
    "rxe": ("hostnic to a kernel's rdma_rxe beside rdma_rxe to rdma_rxe (root, a peer)", rxe.run),
    "ways": ("how memory is reached: messages, registration, fork, waiting", ways.run),
    "growth": ("memory per object, start-up, registration, CPU use when idle", growth.run),
    "loss": ("goodput against loss", loss.run),
}


@dataclasses.dataclass
class Bench:
    """What the sections go by."""
    build: Path
    results: Path
    quick: bool
    repetitions: int
    chosen_sizes: list
    segmentation: str
    micro_seconds: float
    filter: str

    def __post_init__(self):
        self.cpus = sorted(os.sched_getaffinity(0))

    def sizes(self, usual, quick):
        return self.chosen_sizes or (quick if self.quick else usual)

    def modes(self):
        """(suffix of the series' names, options of the lab): the virtual wire as it is, and with
        every packet handled as a packet, if this hostnic knows the difference."""
        as_it_is, by_packet = ("", []), (", by packet", ["--segmentation", "off"])
        if not Lab(self.build).knows("--segmentation"):
            return [as_it_is]
        return {"on": [as_it_is], "off": [by_packet]}.get(self.segmentation,
                                                           [as_it_is, by_packet])


def positive(text):
    value = float(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"\"{text}\" is not above 0")
    return value


def count(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"\"{text}\" is not above 0")
    return value


def parse_options():
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", choices=["report"],
                        help="report: write docs/performance/results.md from the CSVs, and measure "
                             "nothing")
    parser.add_argument("--build", type=Path, default=programs.TOP / "build-release",
                        help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), metavar="SECTION",
                        default=list(SECTIONS), help="these sections: " + ", ".join(SECTIONS))
    parser.add_argument("--list", action="store_true", help="say what the sections are, and leave")
    parser.add_argument("--quick", action="store_true",
                        help="fewer places and runs: about 3 minutes instead of 40")
    parser.add_argument("--repetitions", type=count, metavar="N",
                        help=f"runs per figure (default {REPETITIONS}; {QUICK_REPETITIONS} if quick)")
    parser.add_argument("--sizes", type=count, nargs="+", metavar="BYTES", default=[],
                        help="other message sizes for bandwidth, latency and peers")
    parser.add_argument("--segmentation", choices=["on", "off", "both"], default="both",
                        help="the virtual wire's segmentation offload (default: %(default)s)")
    parser.add_argument("--filter", default=".", metavar="REGEX",
                        help="only the micro benchmarks whose names match")
    parser.add_argument("--min-time", type=positive, metavar="SECONDS",
                        help=f"at least so long per micro benchmark (default {MICRO_SECONDS})")
    return parser.parse_args()


def make_bench(options):
    return Bench(
        build=options.build.resolve(), quick=options.quick,
        # What is measured in a hurry is not for the report.
        results=programs.TOP / "bench-results" / ("quick" if options.quick else ""),
        repetitions=options.repetitions or (QUICK_REPETITIONS if options.quick else REPETITIONS),
        chosen_sizes=options.sizes, segmentation=options.segmentation,
        micro_seconds=options.min_time or (QUICK_MICRO_SECONDS if options.quick
                                           else MICRO_SECONDS),
        filter=options.filter)


def run_section(bench, name):
    """How many figures were measured wrongly."""
    title, function = SECTIONS[name]
    print(f"\n== {name}: {title}", flush=True)
    start = time.monotonic()
    try:
        sheets = function(bench) or []
    except Unavailable as error:
        print(f"   skipped: {name}: {error}", flush=True)
        return 0
    for sheet in sheets:
        sheet.print()
        sheet.write(bench.results)
    print(f"({name}: {time.monotonic() - start:.0f} s; {programs.machine()})", flush=True)
    return sum(len(sheet.wrong()) for sheet in sheets)


def main():
    options = parse_options()
    if options.list:
        for name, (title, _) in SECTIONS.items():
            print(f"{name:<10} {title}")
        return 0
    bench = make_bench(options)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.environ["LC_ALL"] = "C"
    try:
        if options.command == "report":
            report.write(bench.results)
            return 0
        print(programs.machine())
        errors = sum(run_section(bench, name) for name in SECTIONS if name in options.only)
    except (BenchError, OSError) as error:
        sys.exit(f"bench: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    if errors != 0:
        sys.exit(f"bench: {errors} figures were measured wrongly")
    return 0


if __name__ == "__main__":
    sys.exit(main())
