#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs the simulation and hostnic-verify with one random seed after the other until the time is
over; with --networks the simulation only, which finds most; with --stress hostnic-stress for all of it: 64
threads, 1,000 QPs, and threads that open devices at once, register around each message, are
cancelled, or use system calls on registered memory; with --gloo the collectives of hostnic-gloo and hostnic-allreduce,
beside two busy loops; with --deaths programs and hostnicds that are killed or stopped at random moments; with --frames two
hosts' hostnicds under hostile frames; with --memory programs of random operations on their address space. A failure is printed with its seed and the command that repeats it."""

import argparse
import contextlib
import random
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from results import Results, run_check, run_runner
from soak_deaths import soak_deaths
from soak_frames import soak_frames

TOP = Path(__file__).resolve().parents[2]
RUN_LIMIT_S = 300
# Worlds take milliseconds, a lab seconds.
SIM_SEEDS = 10
NETWORKS_SEEDS = 100
# Of hostnic-twin, over its set-ups, and how long the last that were begun may take.
MEMORY_SEEDS, MEMORY_LIMIT_S = 2000, 1800
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


def collectives(build, seed):
    """A few seconds' run of gloo, where it is installed, or of its pattern."""
    choose = random.Random(seed)
    programs = [path for path in (build / "tests/apps/hostnic-gloo", build / "tests/apps/hostnic-allreduce")
                if path.exists()]
    command = [build / "hostnic", "lab", "--seed", seed, "--loss", choose.choice(["0", "0", "1%"]), "--",
               choose.choice(programs), "--seed", seed, "--ranks", choose.choice([2, 4, 4, 4, 5, 8, 16]),
               "--steps", choose.randint(1, 5), "--devices", choose.choice(["hnic0", "hnic0,hnic1"])]
    if choose.random() < 0.3:
        command.append("--processes")
    return command


@contextlib.contextmanager
def busy_loops(count):
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def soak_collectives(build, results, seed, end):
    with busy_loops(2):
        runs = 0
        while time.monotonic() < end:
            command = collectives(build, seed)
            program = command[command.index("--") + 1].name
            if not run_check(results, f"seed {seed}: {program}", command, RUN_LIMIT_S):
                print("     again: " + shlex.join(map(str, command)), flush=True)
            seed += 1
            runs += 1
    print(f"{runs} runs of collectives")


def soak_memory(build, results, seed, end, count):
    """All set-ups of hostnic-twin, with other seeds each time."""
    runs = 0
    while time.monotonic() < end and runs < count:
        seeds = min(MEMORY_SEEDS, count - runs)
        run_runner(results, f"seed {seed}: hostnic-twin",
                   [sys.executable, TOP / "tests/lab/run_twin_tests.py", "--build", build, "--first-seed", seed,
                    "--seeds", seeds, "--minutes", (end - time.monotonic()) / 60],
                   (end - time.monotonic()) + MEMORY_LIMIT_S)
        seed += seeds
        runs += seeds


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
    only.add_argument("--gloo", action="store_true",
                      help="collectives of several ranks instead, beside two busy loops")
    only.add_argument("--deaths", action="store_true",
                      help="kill, and stop for a while, programs and hostnicds at random moments instead")
    only.add_argument("--frames", action="store_true",
                      help="send hostile frames to the hostnicds of two hosts instead (as root)")
    only.add_argument("--memory", action="store_true",
                      help="do random things to address spaces with registered memory instead, and compare with a "
                      "model of pinned pages")
    parser.add_argument("--count", metavar="N", type=int, default=1 << 40,
                        help="of --deaths, --frames, --memory: end after so many of them, if that is earlier")
    parser.add_argument("--daemons", type=Path, metavar="DIR",
                        help="of --frames: the build directory of hostnicd, if another (one with sanitizers)")
    options = parser.parse_args()
    build, results = options.build.resolve(), Results()
    if not (build / "hostnic").exists():
        sys.exit(f"{build / 'hostnic'} is missing: build first (./run build)")
    for which in (signal.SIGTERM, signal.SIGHUP):  # what was begun is ended
        signal.signal(which, lambda number, _: sys.exit(128 + number))
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
    if options.gloo:
        soak_collectives(build, results, seed, end)
    if options.deaths:
        print(f"seed {seed}", flush=True)
        soak_deaths(build, results, seed, end, options.count)
    if options.frames:
        print(f"seed {seed}", flush=True)
        soak_frames(build, (options.daemons or build).resolve(), results, seed, end, options.count)
    if options.memory:
        soak_memory(build, results, seed, end, options.count)
    seeds = NETWORKS_SEEDS if options.networks else SIM_SEEDS
    others = options.stress or options.gloo or options.deaths or options.frames or \
        options.memory
    while time.monotonic() < end and not others:
        rounds = [("simulation", [build / "tests/sim/sim-test", f"--gtest_filter={SIM_TESTS}",
                                  "--seeds", seeds, "--first-seed", seed])]
        if not options.networks:
            rounds.append(("hostnic-verify", verify(build, seed)))
        for name, command in rounds:
            if not run_check(results, f"seed {seed}: {name}", command, RUN_LIMIT_S):
                print("     again: " + shlex.join(map(str, command)), flush=True)
        seed += seeds
    results.show_failures()
    print(results.summary())
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
