#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The recovery study: calls `hostnic simulate --study recovery`, which runs its cells on virtual time,
and of what that says writes docs/recovery/study.csv, the tables of docs/recovery.md and, with gnuplot,
docs/recovery/*.svg. The numbers are exact: the same source gives the same files on every machine.

--golden compares bench/recovery/golden.csv, a small part of the study, with what the program says
now, as the tests do; --update writes what it says now into it."""

import argparse
import csv
import difflib
import os
import subprocess
import sys
import time
from pathlib import Path

import plots
import tables

TOP = Path(__file__).resolve().parents[2]
GOLDEN = TOP / "bench" / "recovery" / "golden.csv"
DOCUMENT = TOP / "docs" / "recovery.md"
RESULTS = TOP / "docs" / "recovery"
PROGRAM = Path("hostnic-simulate")
LIMIT_S = 3600
# What has to agree for one cell to be the undisturbed case of another: `selective` without loss. Where
# windows are compared, the largest is it.
SAME = ["study", "qps", "message_bytes", "depth_messages"]
IDEAL = {"policy": "selective", "window_packets": 1024, "loss_ppm": 0, "reorder_ppm": 0}
# What cells of this study differ in, and what came of them.
COLUMNS = ["study", "policy", "qps", "window_packets", "message_bytes", "depth_messages", "loss_ppm", "reorder_ppm",
           "reorder_distance_packets", "messages", "completed_messages", "result", "p50_ns", "p99_ns",
           "payload_bytes", "duration_ns", "sent_packets", "resent_packets", "lost_packets", "duplicate_packets",
           "acks", "timeouts", "probes", "gbps", "fraction", "spurious_percent", "acks_per_packet"]


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
    rows = list(csv.DictReader(run(program, "--study", "recovery", "--csv", "--jobs", jobs)))
    for row in rows:
        for name, value in row.items():
            row[name] = int(value) if value.isdigit() else value
    return rows


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
        writer.writerow(COLUMNS)
        for row in rows:
            writer.writerow([f"{row[name]:.{digits[name]}f}" if name in digits else row[name]
                             for name in COLUMNS])


def compare_golden(program, update):
    """Whether they agree; afterwards they do with `update`."""
    now = [line + "\n" for line in run(program, "--study", "recovery", "--golden", "--csv")]
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
