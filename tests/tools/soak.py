#!/usr/bin/env python3
"""Runs the simulation and hostnic-verify with one random seed after the other until the time is
over; with --networks the simulation only, which finds most; with --stress hostnic-stress for all of it: 64
threads, 1,000 QPs, and threads that open devices at once, register around each message, are
cancelled, or use system calls on registered memory. A failure is printed with its seed and the command that repeats it."""

import argparse
import random
import shlex
import sys
import time
from pathlib import Path

from results import Results, run_check

TOP = Path(__file__).resolve().parents[2]
RUN_LIMIT_S = 300
# Worlds take milliseconds, a lab seconds.
SIM_SEEDS = 10
NETWORKS_SEEDS = 100
SIM_TESTS = "*Network*:Liveness.*"
IMPAIRMENTS = [
    "drop 0.1%",
    "drop 1%; reorder 2% distance 4; duplicate 1%",
    "drop 5%; reorder 5% distance 8; duplicate 2%",
]
MTUS = [256, 512, 1024, 2048, 4096]
SIZES = ["4k", "64k", "1m", "8m"]


def verify(build, seed):
    """One lab with a random wire, and all operations over it."""
    choose = random.Random(seed)
    command = [build / "hostnic", "lab", "--seed", seed, "--impair", choose.choice(IMPAIRMENTS),
               "--", build / "tests/apps/hostnic-verify", "--both", "--seed", seed,
               "--timeout-seconds", 60, "--qps", choose.randint(1, 8), "--mtu",
               choose.choice(MTUS), "--max-bytes", choose.choice(SIZES)]
    command += ["--device", "hnic0", "--peer-device", choose.choice(["hnic0", "hnic1"])]
    if choose.random() < 0.3:
        command.append("--events")
    return command


# Each takes its part of the time: how much is lost, and the program's arguments.
STRESS = [
    ("mixed work", 0.6, "0.5%", []),
    ("opening, registering, cancelling, system calls", 0.2, "0", ["--kinds", "open,register,cancel,syscalls"]),
    ("all at once, loss", 0.2, "1%", ["--kinds", "all", "--threads", "16", "--qps", "200"]),
]


def stress(build, seed, seconds, loss, arguments):
    return [build / "hostnic", "lab", "--seed", seed, "--loss", loss, "--",
            build / "tests/apps/hostnic-stress", "--seed", seed, "--seconds", max(1, round(seconds)),
            *arguments]


def main():
    parser = argparse.ArgumentParser(prog="./run soak", description=__doc__)
    parser.add_argument("--build", type=Path, default=TOP / "build", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help="the first seed (default: random)")
    parser.add_argument("--minutes", metavar="N", type=float, default=10,
                        help="how long (default: %(default)s)")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--networks", action="store_true",
                      help="simulated networks only, several hundred a minute")
    only.add_argument("--stress", action="store_true",
                      help="many threads and queue pairs at once instead")
    options = parser.parse_args()
    build, results = options.build.resolve(), Results()
    if not (build / "hostnic").exists():
        sys.exit(f"{build / 'hostnic'} is missing: build first (./run build)")
    seed = options.seed or random.SystemRandom().randrange(1, 1 << 31)
    end = time.monotonic() + options.minutes * 60
    if options.stress:
        # What it makes it also closes, waiting for all that is outstanding.
        for name, part, loss, arguments in STRESS:
            seconds = options.minutes * 60 * part
            command = stress(build, seed, seconds, loss, arguments)
            if not run_check(results, f"seed {seed}: hostnic-stress, {name}", command,
                             seconds + RUN_LIMIT_S):
                print("     again: " + shlex.join(map(str, command)), flush=True)
    seeds = NETWORKS_SEEDS if options.networks else SIM_SEEDS
    while time.monotonic() < end and not options.stress:
        rounds = [("simulation", [build / "tests/sim/sim-test", f"--gtest_filter={SIM_TESTS}",
                                  "--seeds", seeds, "--first-seed", seed])]
        if not options.networks:
            rounds.append(("hostnic-verify", verify(build, seed)))
        for name, command in rounds:
            if not run_check(results, f"seed {seed}: {name}", command, RUN_LIMIT_S):
                print("     again: " + shlex.join(map(str, command)), flush=True)
        seed += seeds
    for failure in results.failures:
        print(f"   FAIL {failure}")
    print(results.summary())
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
