#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The recovery study: runs its cells on virtual time (hostnic-recovery-study, on all cores), writes
docs/recovery/study.csv, the tables of docs/recovery.md and, with gnuplot, docs/recovery/*.svg.
The numbers are exact: the same source gives the same files on every machine.

--golden compares bench/recovery/golden.csv, a small part of the study, with what the program says
now, as the tests do; --update writes what it says now into it."""

import argparse
import csv
import difflib
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import plots
import tables

TOP = Path(__file__).resolve().parents[2]
GOLDEN = TOP / "bench" / "recovery" / "golden.csv"
DOCUMENT = TOP / "docs" / "recovery.md"
RESULTS = TOP / "docs" / "recovery"
PROGRAM = Path("bench") / "recovery" / "hostnic-recovery-study"
# Many and interleaved, so that all cores are done at about the same time; prime, so that no part is
# of one kind.
PARTS = 17
LIMIT_S = 3600
# What has to agree for one cell to be the undisturbed case of another: `selective` without loss. Where
# windows are compared, the largest is it.
SAME = ["study", "qps", "message_bytes", "depth"]
IDEAL = {"policy": "selective", "window": 1024, "loss_ppm": 0, "reorder_ppm": 0}


class StudyError(Exception):
    pass


def run(program, *options):
    """The program's CSV, as lines."""
    result = subprocess.run([str(program), *map(str, options)], stdin=subprocess.DEVNULL,
                            capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if result.returncode != 0:
        raise StudyError(f"{program} ended with status {result.returncode}\n{result.stderr}")
    return result.stdout.splitlines()


def run_study(program, jobs):
    rows = []
    with ThreadPoolExecutor(jobs) as pool:
        runs = [pool.submit(run, program, "--parts", PARTS, "--part", part)
                for part in range(PARTS)]
        for number, part in enumerate(runs):
            rows += csv.DictReader(part.result())
            print(f"   {number + 1} of {PARTS} parts", flush=True)
    for row in rows:
        for name, value in row.items():
            row[name] = int(value) if value.isdigit() else value
    return sorted(rows, key=lambda row: row["cell"])


def derive(rows):
    """What the study is about, from what was counted."""
    undisturbed = {}
    for row in rows:
        row["gbps"] = row["payload_bytes"] * 8 / row["duration_ns"] if row["duration_ns"] else 0.0
        if all(row[name] == value for name, value in IDEAL.items()):
            undisturbed[tuple(row[name] for name in SAME)] = row["gbps"]
    for row in rows:
        ideal = (1 - row["loss_ppm"] / 1e6) * undisturbed[tuple(row[name] for name in SAME)]
        row["fraction"] = row["gbps"] / ideal
        spurious = max(row["resent_packets"] - row["lost_packets"], 0)
        row["spurious_percent"] = 100 * spurious / row["sent_packets"]
        row["acks_per_packet"] = row["acks"] / row["sent_packets"]
    return rows


def write_csv(path, rows):
    digits = {"gbps": 3, "fraction": 4, "spurious_percent": 3, "acks_per_packet": 4}
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        names = [name for name in rows[0] if name != "cell"]
        writer.writerow(names)
        for row in rows:
            writer.writerow([f"{row[name]:.{digits[name]}f}" if name in digits else row[name]
                             for name in names])


def compare_golden(program, update):
    """Whether they agree; afterwards they do with `update`."""
    now = [line + "\n" for line in run(program, "--golden")]
    if update:
        GOLDEN.write_text("".join(now), encoding="utf-8")
        print(f"{GOLDEN}: {len(now) - 1} cells")
        return True
    with open(GOLDEN, encoding="utf-8") as file:
        before = file.readlines()
    differences = list(difflib.unified_diff(before, now, "golden.csv", "now", n=0))
    if not differences:
        print(f"{len(now) - 1} cells are what they were")
        return True
    sys.stdout.writelines(differences)
    print("Recovery behaves differently than before, in virtual time and so not by chance. If the "
          "new numbers\nare meant (and no worse), accept them: ./run bench recovery --golden "
          "--update")
    return False


def parse_options():
    parser = argparse.ArgumentParser(prog="./run bench recovery", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=TOP / "build-release",
                        help=argparse.SUPPRESS)
    parser.add_argument("--program", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N",
                        help="so many at a time (default: one per core)")
    parser.add_argument("--golden", action="store_true", help="only the golden snapshot")
    parser.add_argument("--update", action="store_true",
                        help="with --golden: accept what comes out now")
    options = parser.parse_args()
    if options.update and not options.golden:
        parser.error("--update goes with --golden")
    return options


def main():
    options = parse_options()
    program = options.program or options.build.resolve() / PROGRAM
    try:
        if options.golden:
            return 0 if compare_golden(program, options.update) else 1
        start = time.monotonic()
        rows = derive(run_study(program, max(options.jobs, 1)))
        print(f"{len(rows)} cells, {sum(row['sent_packets'] for row in rows)} data packets in "
              f"{time.monotonic() - start:.0f} s")
        RESULTS.mkdir(exist_ok=True)
        write_csv(RESULTS / "study.csv", rows)
        tables.write(DOCUMENT, rows)
        plots.write(RESULTS, rows)
        print(f"{RESULTS}/study.csv and *.svg, {DOCUMENT}")
    except (StudyError, OSError, subprocess.SubprocessError) as error:
        sys.exit(f"bench recovery: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
