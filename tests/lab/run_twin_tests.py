#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""hostnic-twin in labs: programs of random operations on their address space, with memory that is registered, beside a
model of what pinned pages do. Each seed in each set-up: as root, as an ordinary user, without userfaultfd, with one
thread and with several, and with each way of reaching memory."""

import argparse
import concurrent.futures
import dataclasses
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import ordinary_user
from harness import REPOSITORY, quoted, remove_left_directories, require_programs, stop_group

TWIN = "tests/apps/hostnic-twin"
PROGRAMS = ["hostnic", "hostnicd", "libhostnic-verbs.so"]
SUMMARY = re.compile(r"^(\d+) passed, (\d+) failed$", re.MULTILINE)
# Of one seed; most take a tenth of a second.
SEED_S, LAB_S = 60, 120
CI_SEEDS, QUICK_SEEDS, FULL_SEEDS = 100, 360, 2000
# As many seeds as there are this many CPUs' worth of labs are run in one.
SEEDS_OF_A_LAB = 20
MOST_FAILURES = 3  # of a lab


@dataclasses.dataclass
class SetUp:
    name: str
    share: int  # of the seeds, beside the others
    arguments: list = dataclasses.field(default_factory=list)
    environment: dict = dataclasses.field(default_factory=dict)
    ordinary: bool = False
    lab: list = dataclasses.field(default_factory=list)  # options of the lab


THREADS = ["--threads", "3", "--ops", "80"]
# Not all memory can be had these ways.
REFUSES = ["--may-refuse"]
# Bare system calls that docs/memory.md says are not supported: where pages migrate (others may fail there), and where
# the kernel tells nobody what becomes of mappings.
MOVES = "move,move-over,move-dontunmap,grow,grow-in-place,shrink"
MIGRATES = ["--without", "clone", "--by-libc", "dontfork,wipeonfork,hugepage", "--bare-may-fail"]
UNTOLD = ["--no-userfaultfd", "--without", "break", "--by-libc", f"{MOVES},unmap,map-over"]
SET_UPS = [
    SetUp("root", 5, MIGRATES),
    SetUp("root, threads", 3, THREADS),
    SetUp("ordinary user", 5, MIGRATES, ordinary=True),
    SetUp("ordinary user, threads", 3, THREADS, ordinary=True),
    SetUp("without userfaultfd", 3, UNTOLD),
    SetUp("without userfaultfd, threads", 1, [*UNTOLD, *THREADS]),
    SetUp("memory by mem fd", 2, environment={"HOSTNIC_MEMORY": "memfd"}),
    SetUp("memory by mem fd, threads", 1, THREADS, {"HOSTNIC_MEMORY": "memfd"}),
    SetUp("memory by window", 1, [*REFUSES, *MIGRATES], {"HOSTNIC_MEMORY": "window"}),
    SetUp("memory by file", 1, REFUSES, {"HOSTNIC_MEMORY": "file"}),
    SetUp("never migrated", 1, environment={"HOSTNIC_MIGRATE": "0"}),
    SetUp("migrated now", 1, MIGRATES, environment={"HOSTNIC_MIGRATE": "now"}),
    SetUp("migrated at once", 1, MIGRATES, environment={"HOSTNIC_MIGRATE": "at-once"}),
]


class Places:
    """Where the programs are, for root and for an ordinary user."""

    def __init__(self, build, apps):
        self.build, self.apps = build, apps
        self.home = None

    def command(self, set_up, seeds, more):
        build, apps, prefix, environment = self.build, self.apps, [], {}
        if set_up.ordinary and os.geteuid() == 0:
            if self.home is None:
                self.home = ordinary_user.copy({**{p: self.build / p for p in PROGRAMS}, TWIN: self.apps / TWIN})
            build = apps = self.home
            prefix, environment = ordinary_user.prefix(), ordinary_user.environment(self.home)
        return ([*prefix, build / "hostnic", "lab", *set_up.lab, "--", apps / TWIN, "--seeds", seeds, "--limit-seconds", SEED_S,
                 "--failures", MOST_FAILURES, *set_up.arguments, *more], {**set_up.environment, **environment})


def shares(set_ups, seeds, first):
    """(set-up, first seed, last seed) of each lab."""
    total = sum(each.share for each in set_ups)
    labs = []
    for each in set_ups:
        left = max(1, seeds * each.share // total)
        while left > 0:
            count = min(left, SEEDS_OF_A_LAB)
            labs.append((each, first, first + count - 1))
            first += count
            left -= count
    return labs


def run_lab(places, lab, more, until):
    """(seeds that passed, failed, output, command)"""
    set_up, first, last = lab
    command, environment = places.command(set_up, f"{first}..{last}", more)
    if until is not None and time.monotonic() > until:
        return 0, 0, "", command, environment
    process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
                               env={**os.environ, **environment})
    try:
        output, _ = process.communicate(timeout=LAB_S + (last - first + 1) * SEED_S)
    except subprocess.TimeoutExpired:
        stop_group(process)
        output, _ = process.communicate()
        output += "\nthe lab has not ended\n"
    stop_group(process)
    found = SUMMARY.findall(output)
    if not found:
        return 0, 1, output, command, environment
    passed, failed = (int(number) for number in found[-1])
    if failed == 0 and (process.returncode != 0 or passed != last - first + 1):
        return passed, 1, f"{output}\nexit status {process.returncode}, {passed} seeds\n", command, environment
    return passed, failed, output, command, environment


def longest_calls(outputs):
    """{kind: ms} over all."""
    longest = {}
    for line in re.findall(r"^longest calls, ms:(.*)$", "\n".join(outputs), re.MULTILINE):
        words = line.split()
        for kind, ms in zip(words[::2], words[1::2]):
            longest[kind] = max(longest.get(kind, 0), float(ms))
    return sorted(longest.items(), key=lambda each: -each[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default=REPOSITORY / "build", type=Path)
    parser.add_argument("--apps", type=Path, metavar="DIR", help="build directory of hostnic-twin, if another")
    parser.add_argument("--seeds", type=int, metavar="N", help="how many, over all set-ups")
    parser.add_argument("--first-seed", type=int, default=1, metavar="S", help="(default: %(default)s)")
    parser.add_argument("--minutes", type=float, metavar="N", help="begins nothing later than that")
    parser.add_argument("--filter", default="", help="the set-ups whose name matches this regex")
    parser.add_argument("--list", action="store_true", help="print the set-ups and leave")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N",
                        help="labs at a time (default: as many as CPUs)")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help=f"{QUICK_SEEDS} seeds")
    size.add_argument("--ci", action="store_true", help=f"{CI_SEEDS} seeds")
    size.add_argument("--full", action="store_true", help=f"{FULL_SEEDS} seeds (default)")
    parser.add_argument("more", nargs="*", metavar="OPTION", help="after --: hostnic-twin's own")
    options = parser.parse_args()
    options.build = options.build.resolve()
    places = Places(options.build, (options.apps or options.build).resolve())
    require_programs(options.build, PROGRAMS)
    require_programs(places.apps, [TWIN])
    set_ups = [each for each in SET_UPS if re.search(options.filter, each.name)]
    if options.list or not set_ups:
        print("\n".join(each.name for each in SET_UPS))
        return 0 if options.list else 1
    skipped = {}
    if (reason := ordinary_user.reason_against()) is not None:
        skipped = {each.name: reason for each in set_ups if each.ordinary}
        set_ups = [each for each in set_ups if not each.ordinary]
    seeds = options.seeds or (CI_SEEDS if options.ci else QUICK_SEEDS if options.quick else FULL_SEEDS)
    labs = shares(set_ups, seeds, options.first_seed)
    # Of what is ended by --minutes something of each set-up has been run.
    random.Random(options.first_seed).shuffle(labs)
    until = None if options.minutes is None else time.monotonic() + options.minutes * 60
    counts = {each.name: [0, 0] for each in set_ups}
    outputs = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        futures = {pool.submit(run_lab, places, lab, options.more, until): lab for lab in labs}
        for future in concurrent.futures.as_completed(futures):
            passed, failed, output, command, environment = future.result()
            name = futures[future][0].name
            counts[name][0] += passed
            counts[name][1] += failed
            outputs.append(output)
            if failed:
                print(f"FAIL {name}: {failed} of {passed + failed} seeds")
                print("\n".join(f"     | {line}" for line in output.rstrip().splitlines()[-120:]))
                again = [f"{key}={value}" for key, value in environment.items()] + quoted(command)
                print("     again: " + " ".join(again), flush=True)
    for name, (passed, failed) in counts.items():
        if failed == 0 and passed != 0:
            print(f"ok   {name}: {passed} seeds")
    for name, reason in skipped.items():
        print(f"skip {name}: {reason}")
    print("     longest calls, ms: " + ", ".join(f"{kind} {ms:.1f}" for kind, ms in longest_calls(outputs)[:12]))
    remove_left_directories()
    if places.home is not None:
        shutil.rmtree(places.home, ignore_errors=True)
    all_passed = sum(passed for passed, _ in counts.values())
    all_failed = sum(failed for _, failed in counts.values())
    print(f"{all_passed} passed, {all_failed} failed" + (f", {len(skipped)} skipped" if skipped else ""))
    return 1 if all_failed or not all_passed else 0


if __name__ == "__main__":
    sys.exit(main())
