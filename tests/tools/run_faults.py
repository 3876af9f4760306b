#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of the tests: breaks the transport in one place after the other (tests/faults) and
requires that the suite notices: first the unit tests, then the simulation's directed tests, then
races of threads, exhaustive patterns, and random networks. One line per fault says which check did.
With nothing broken all must pass, and the programs that users run must contain nothing of it."""

import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from results import GTEST_START, Process, how_it_ended

VARIABLE = "HOSTNIC_TEST_FAULT"
SIM = "tests/sim/sim-test"
# No fault is in these.
ELSEWHERE = "-QpStateMachine*:QpAttributes*:CqTest*:Neighbours*:FlowTag*"
# Threads that race for seconds, and are for one fault each.
RACES = "Copy*:*AtomicsTest*"
STAGES = [
    ("unit", [[f"tests/unit/{part}/unit-{part}", f"--gtest_filter={ELSEWHERE}:{RACES}"]
              for part in ("protocol", "driver", "nic")]),
    ("directed", [[SIM, "--gtest_filter=-*Network*:Exhaustive*:DamagedBytes*:Replay*"]]),
    ("races", [["tests/unit/nic/unit-nic", f"--gtest_filter={RACES}"]]),
    ("exhaustive", [[SIM, "--gtest_filter=Exhaustive*:DamagedBytes*", "--sample", "200"]]),
    ("random", [[SIM, "--gtest_filter=*Network*", "--seeds", "8"]]),
]
# A broken transport may go round for ever. Loaded machines must not look like that: the limit is
# the larger of this and a multiple of what the unbroken one takes.
MIN_LIMIT_S = 30
LIMIT_FACTOR = 15
UNBROKEN_LIMIT_S = 600
MESSAGE_LENGTH = 110

PROGRAMS = ["hostnicd", "hostnic", "libhostnic-verbs.so"]
TRACES = [VARIABLE.encode(), b"chosen_fault"]

FAILED = re.compile(r"\[  FAILED  \] ([^\s,]+)")


def list_faults(build):
    """(name, what is wrong) of all."""
    listed = subprocess.run([build / SIM], env={**os.environ, VARIABLE: "list"}, check=True,
                            capture_output=True, text=True)
    return [tuple(line.split("\t")) for line in listed.stdout.splitlines()]


def message_of(lines):
    """The first failed check of a GoogleTest's output in a few words."""
    start = next((i for i, line in enumerate(lines) if line.endswith(": Failure")), None)
    if start is None:
        return ""
    said = []
    for line in lines[start + 1:]:
        if line.startswith("[") or line.endswith(": Failure") or not line.strip():
            break
        said.append(line.strip())
    values = [line for line in said[1:] if not line.startswith("Which is:")]
    if said and said[0].startswith("Expected equality") and len(values) >= 2:
        text = f"{values[0]} == {values[1]}" + (f" ({values[2]})" if len(values) > 2 else "")
    elif said and said[0].startswith("Value of: "):
        text = said[0].removeprefix("Value of: ") + " is " + said[1].removeprefix("Actual: ")
        text += f" ({said[3]})" if len(said) > 3 else ""
    else:
        text = (said[1] if said and said[0] == "Failed" and len(said) > 1 else " ".join(said))
    return text if len(text) <= MESSAGE_LENGTH else text[:MESSAGE_LENGTH - 3] + "..."


class Outcome:
    """Of one program with one fault. `caught`: by which check; empty: it passed. `error`: it never
    came to a test, which proves nothing."""

    def __init__(self, build, command, fault, limit_s, scratch):
        self.caught = self.error = ""
        # What EAL leaves behind when it is killed goes with the directory.
        environment = {"XDG_RUNTIME_DIR": scratch}
        if fault:
            environment[VARIABLE] = fault
        start = time.monotonic()
        process = Process([build / command[0], *command[1:], "--gtest_fail_fast",
                           "--gtest_brief=0"], limit_s, environment)
        lines = list(process.lines())
        status = process.finish()
        self.seconds = time.monotonic() - start
        started = [begun.group(1) for line in lines if (begun := GTEST_START.search(line))]
        failed = next((line.group(1) for line in map(FAILED.match, lines) if line), None)
        if process.timed_out:
            self.caught = f"{started[-1] if started else '?'}: liveness: " + how_it_ended(
                process, status, round(limit_s))
        elif status != 0 and not started:
            self.error = f"{command[0]} ran no test: " + " ".join(lines[-3:])
        elif failed is not None:
            self.caught = f"{failed}: {message_of(lines)}"
        elif status != 0:
            self.caught = f"{started[-1]}: " + how_it_ended(process, status, limit_s)


class Runner:
    def __init__(self, options, scratch):
        self.options = options
        self.scratch = scratch
        self.limits_s = {}
        self.failures = self.passed = 0

    def say(self, good, text):
        self.passed += good
        self.failures += not good
        print(("ok   " if good else "FAIL ") + text, flush=True)

    def unbroken(self):
        """With no fault everything passes; how long that takes bounds the rest."""
        for stage, commands in STAGES:
            for command in commands:
                outcome = Outcome(self.options.build, command, None, UNBROKEN_LIMIT_S,
                                  self.scratch)
                self.limits_s[tuple(command)] = max(MIN_LIMIT_S, LIMIT_FACTOR * outcome.seconds)
                wrong = outcome.caught or outcome.error
                self.say(not wrong, f"nothing broken: {stage}, {Path(command[0]).name}"
                         + (f": {wrong}" if wrong else f" ({outcome.seconds:.1f} s)"))
        return self.failures == 0

    def try_fault(self, fault):
        """What each stage says about it, as far as asked for."""
        found = []
        for stage, commands in STAGES:
            for command in commands:
                outcome = Outcome(self.options.build, command, fault,
                                  self.limits_s[tuple(command)], self.scratch)
                if outcome.error:
                    return [("error", outcome.error)]
                if outcome.caught:
                    found.append((stage, outcome.caught))
                    break
            if found and not self.options.every_stage:
                break
        return found

    def faults(self, chosen):
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            for (name, what), found in zip(chosen, pool.map(lambda f: self.try_fault(f[0]),
                                                            chosen)):
                caught = bool(found) and found[0][0] != "error"
                rows = [f"{stage:<10} {text}" for stage, text in found] or [
                    f"NOT CAUGHT: {what}"]
                self.say(caught, f"{name:<26} {rows[0]}")
                for row in rows[1:]:
                    print(f"     {'':<26} {row}")

    def programs(self):
        """What users run has no switch to break it."""
        control = (self.options.build / SIM).read_bytes()
        if not all(trace in control for trace in TRACES):
            self.say(False, f"{SIM} of {self.options.build} has no faults")
        for name in PROGRAMS:
            path = self.options.programs / name
            content = path.read_bytes() if path.exists() else None
            self.say(content is not None and not any(trace in content for trace in TRACES),
                     f"{name} contains no faults" if content else f"{path} is missing")


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True,
                        help="a build of sources in which they are planted")
    parser.add_argument("--programs", type=Path, help="a build without: look into its programs")
    parser.add_argument("--every-stage", action="store_true",
                        help="go on after the first stage that notices")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="faults at a time")
    parser.add_argument("--list", action="store_true", help="print the faults and do nothing")
    parser.add_argument("fault", nargs="*", help="only these")
    options = parser.parse_args()
    options.build = options.build.resolve()
    return options


def main():
    options = parse()
    faults = list_faults(options.build)
    if options.list:
        for name, what in faults:
            print(f"{name:<26} {what}")
        return 0
    unknown = set(options.fault) - {name for name, _ in faults}
    if unknown:
        sys.exit(f"no such fault: {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory(prefix="hostnic-faults-") as scratch:
        runner = Runner(options, scratch)
        if options.programs is not None:
            runner.programs()
        if runner.unbroken():
            runner.faults([f for f in faults if not options.fault or f[0] in options.fault])
    print(f"{runner.passed} passed, {runner.failures} failed")
    return 1 if runner.failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted")
