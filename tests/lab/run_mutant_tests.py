#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of hostnic-twin: libraries that are broken on purpose (tests/mutants/memory.toml), each of which its seeds must
notice in the set-ups that are named there. A seed that fails with the unbroken programs as well does not count."""

import argparse
import concurrent.futures
import os
import re
import shutil
import sys
from pathlib import Path

from harness import REPOSITORY, remove_left_directories, require_programs
from run_twin_tests import PROGRAMS, SET_UPS, TWIN, Places, SetUp, run_lab

import mutants  # tests/tools, which harness.py has put into sys.path

FOLDER = REPOSITORY / "build-mutants"
SEEDS, SEEDS_OF_A_LAB = 500, 20
DIFFERENT = re.compile(r"^\W*DIFFERENT (?:seed \d+ )?(.*)$", re.MULTILINE)
# What a busy machine may do as well: it has to happen again.
BY_TIME = re.compile(r"not ended|exit status 2|took|takes longer|retry counter exceeded|no completion")
# A machine that is short of everything: nothing of the seeds has been run.
NOT_BEGUN = re.compile(r"hostnicd is not ready|hostnicd doesn't start")
FAILED_SEED = re.compile(r"^\W*FAIL seed (\d+)", re.MULTILINE)
MESSAGE_LENGTH = 130
# What one lcore does is atomic.
TWO_LCORES = SetUp("memory by mem fd, two lcores", 0, environment={"HOSTNIC_MEMORY": "memfd"}, lab=["--lcores", "2"])
ALL_SET_UPS = {each.name: each for each in [*SET_UPS, TWO_LCORES]}


def programs_of(mutant, build, copy):
    """A folder with the mutant's programs, beside those that it has left alone."""
    folder = FOLDER / mutant.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in PROGRAMS:
        shutil.copy(copy.build / name if name in mutant.targets() else build / name, folder / name)
    return folder


def failed_seed(output, first):
    found = FAILED_SEED.search(output)
    return int(found.group(1)) if found else first


def message(output):
    found = DIFFERENT.search(output)
    lines = output.strip().splitlines()
    text = found.group(1).strip() if found else lines[-1].strip() if lines else "no output"
    return text if len(text) <= MESSAGE_LENGTH else text[:MESSAGE_LENGTH - 3] + "..."


def search(mutant, programs, build, options):
    """(seeds that were run, what noticed it or None, seeds that fail unbroken)"""
    broken, unbroken = Places(programs, build), Places(build, build)
    ran, innocent = 0, []
    try:
        for name in mutant.set_ups:
            seed, last = options.first_seed, options.first_seed + options.seeds // len(mutant.set_ups) - 1
            while seed <= last:
                lab = (ALL_SET_UPS[name], seed, min(last, seed + SEEDS_OF_A_LAB - 1))
                passed, failed, output, _, _ = run_lab(broken, lab, ["--failures", "1"], None)
                if NOT_BEGUN.search(output):
                    seed = lab[2] + 1
                    continue
                ran += passed + failed
                if failed == 0:
                    seed = lab[2] + 1
                    continue
                found = failed_seed(output, seed)
                alone = (lab[0], found, found)
                by_time = BY_TIME.search(message(output)) or not DIFFERENT.search(output)
                if by_time:
                    _, again, output_again, _, _ = run_lab(broken, alone, [], None)
                    if again == 0 or NOT_BEGUN.search(output_again):
                        seed = found + 1
                        continue
                if run_lab(unbroken, alone, [], None)[1] == 0:
                    return ran, f"{name}, seed {found}: {message(output)}", innocent
                innocent.append(found)
                seed = found + 1
        return ran, None, innocent
    finally:
        for places in (broken, unbroken):
            if places.home is not None:
                shutil.rmtree(places.home, ignore_errors=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default=REPOSITORY / "build", type=Path, help="programs that are not broken")
    parser.add_argument("--seeds", type=int, default=SEEDS, metavar="N", help="of a mutant, at most (default: %(default)s)")
    parser.add_argument("--first-seed", type=int, default=1, metavar="S", help="(default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N",
                        help="mutants at a time (default: as many as CPUs)")
    parser.add_argument("--list", action="store_true", help="print the mutants and leave")
    for size in ("quick", "ci", "full"):
        parser.add_argument(f"--{size}", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("mutant", nargs="*", help="only these")
    options = parser.parse_args()
    options.build = options.build.resolve()
    return options


def main():
    options = parse()
    chosen = mutants.load("memory")
    if options.list:
        for each in chosen:
            print(f"{each.name:<34} {each.what}")
        return 0
    if unknown := set(options.mutant) - {each.name for each in chosen}:
        sys.exit(f"no such mutant: {', '.join(sorted(unknown))}")
    chosen = [each for each in chosen if not options.mutant or each.name in options.mutant]
    require_programs(options.build, [*PROGRAMS, TWIN])
    copy = mutants.Copy(FOLDER)
    copy.renew()
    results = [0, 0]

    def say(good, text):
        results[not good] += 1
        print(("ok   " if good else "FAIL ") + text, flush=True)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        futures = {}
        for each in chosen:
            why = copy.make(each)
            if why is not None:
                say(False, f"{each.name:<34} is not built: {why}")
                continue
            programs = programs_of(each, options.build, copy)
            futures[pool.submit(search, each, programs, options.build, options)] = each
        for future in concurrent.futures.as_completed(futures):
            each = futures[future]
            ran, found, innocent = future.result()
            say(found is not None, f"{each.name:<34} " + (f"{ran:3} seeds: {found}" if found else
                                                          f"NOT NOTICED in {ran} seeds: {each.what}"))
            if innocent:
                print(f"     {'':<34} fail unbroken, too: seeds {', '.join(map(str, innocent))}")
            shutil.rmtree(FOLDER / each.name, ignore_errors=True)
    remove_left_directories()
    print(f"{results[0]} passed, {results[1]} failed")
    return 1 if results[1] or not results[0] else 0


if __name__ == "__main__":
    sys.exit(main())
