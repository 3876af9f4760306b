# SPDX-License-Identifier: BSD-3-Clause
"""Runs test programs and counts what they report, line by line: a program that crashes or hangs has
still passed what it passed before."""

import contextlib
import os
import re
import signal
import subprocess
import threading
import time

# Of a failed test, where it failed; and once more at the end of the run, which is what is left of a long log.
SHOWN_LINES = 60
SHOWN_AT_THE_END = 25

GTEST_END = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] (\S+?),? ?(?:where .*)?\(\d+ ms\)$")
GTEST_START = re.compile(r"\[ RUN +\] (\S+)")
RUNNER_CASE = re.compile(r"(ok  |FAIL|skip) (.+)$")
# What a test program counted beside its tests.
GTEST_COUNTED = re.compile(r"(\d+) (?:of \d+ )?(worlds|patterns)\b")
RUNNER_SUMMARY = re.compile(r"\d+ passed, \d+ failed")


class Results:
    """Of everything that was run. Names are 'part: test'."""

    def __init__(self):
        self.passed = 0
        self.skipped = 0
        self.failures = []  # pairs of a line and what the test said

    def fail(self, name, why="", output=()):
        line = f"{name}: {why}" if why else name
        self.failures.append((line, list(output)))
        print(f"   FAIL {line}", flush=True)

    def add(self, other):
        self.passed += other.passed
        self.skipped += other.skipped
        self.failures += other.failures

    def show_failures(self):
        """Each with the last that it said."""
        for line, output in self.failures:
            print(f"   FAIL {line}")
            show(output, SHOWN_AT_THE_END)

    def summary(self):
        line = f"{self.passed} passed, {len(self.failures)} failed"
        return line + (f", {self.skipped} skipped" if self.skipped else "")


class Process:
    """A program in a process group of its own, read line by line, ended after `limit_s`."""

    def __init__(self, command, limit_s, environment=None):
        self.timed_out = False
        self._process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})}, text=True,
            errors="replace", start_new_session=True)
        self._timer = threading.Timer(limit_s, self._time_out)
        self._timer.start()

    def _time_out(self):
        self.timed_out = True
        # Runners take down what they have set up.
        self._signal(signal.SIGTERM)
        time.sleep(5)
        self._signal(signal.SIGKILL)

    def _signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def lines(self):
        for line in self._process.stdout:
            yield line.rstrip("\n")

    def finish(self):
        """Its exit status. Nothing of its group is left."""
        try:
            status = self._process.wait()
        finally:
            self._timer.cancel()
            self._signal(signal.SIGKILL)
            self._process.stdout.close()
        return status

    def stop(self):
        self._signal(signal.SIGTERM)


def start_process(results, name, command, limit_s, environment):
    """Nothing, and a failure among the results, if there is no such program."""
    try:
        return Process(command, limit_s, environment)
    except OSError as error:
        results.fail(name, str(error))
        return None


def run_to_end(process, handle):
    """Gives every line to `handle`. The exit status."""
    try:
        for line in process.lines():
            handle(line)
    except BaseException:
        process.stop()
        raise
    finally:
        status = process.finish()
    return status


def how_it_ended(process, status, limit_s):
    if process.timed_out:
        return f"not done after {limit_s} s"
    if status < 0:
        return f"ended by {signal.Signals(-status).name}"
    return f"exit status {status}"


def run_gtest(results, name, command, limit_s, environment=None):
    """A GoogleTest program: one line, why a test was skipped, the output of those that failed."""
    start = time.monotonic()
    counts = {"OK": 0, "FAILED": 0, "SKIPPED": 0}
    counted = {}
    running, output = None, []

    def handle(line):
        nonlocal running, output
        if found := GTEST_COUNTED.match(line):
            counted[found.group(2)] = counted.get(found.group(2), 0) + int(found.group(1))
        if begun := GTEST_START.search(line):
            running, output = begun.group(1), []
            return
        ended = GTEST_END.search(line)
        if ended is None or running is None:
            output.append(line)
            return
        counts[ended.group(1)] += 1
        if ended.group(1) == "FAILED":
            show(output)
            results.fail(f"{name}: {running}", output=output)
        elif ended.group(1) == "SKIPPED":
            reasons = [each for each in output if each.strip()]
            print(f"   skip {running}: {reasons[-1].strip() if reasons else 'without a reason'}",
                  flush=True)
        running, output = None, []

    process = start_process(results, name, command, limit_s, environment)
    if process is None:
        return
    status = run_to_end(process, handle)
    results.passed += counts["OK"]
    results.skipped += counts["SKIPPED"]
    if running is not None:
        show(output)
        results.fail(f"{name}: {running}", how_it_ended(process, status, limit_s), output)
    elif status != 0 and counts["FAILED"] == 0:
        show(output)
        results.fail(name, how_it_ended(process, status, limit_s), output)
    elif sum(counts.values()) == 0:
        results.fail(name, "ran no test")
    more = "".join(f", {count:,} {what}" for what, count in sorted(counted.items()))
    print(f"   {name}: {counts['OK']} of {sum(counts.values())} passed{more} "
          f"({time.monotonic() - start:.1f} s)", flush=True)


def run_runner(results, name, command, limit_s, environment=None):
    """One of our Python runners: its lines as they come, without its own summary."""
    counts = {"ok  ": 0, "FAIL": 0, "skip": 0}
    failed = None

    def handle(line):
        nonlocal failed
        # Indented lines are the output of the case before them.
        case = RUNNER_CASE.match(line)
        if case:
            counts[case.group(1)] += 1
            failed = [] if case.group(1) == "FAIL" else None
            if failed is not None:
                results.failures.append((f"{name}: {case.group(2)}", failed))
        elif failed is not None and not RUNNER_SUMMARY.match(line):
            failed.append(line.strip().removeprefix("| "))
        if not RUNNER_SUMMARY.match(line):
            print(f"   {line}", flush=True)

    process = start_process(results, name, command, limit_s, environment)
    if process is None:
        return
    status = run_to_end(process, handle)
    results.passed += counts["ok  "]
    results.skipped += counts["skip"]
    if process.timed_out or (status != 0 and counts["FAIL"] == 0):
        results.fail(name, how_it_ended(process, status, limit_s))
    elif sum(counts.values()) == 0:
        results.fail(name, "ran no test")


def run_check(results, name, command, limit_s, environment=None):
    """A program that is one test: it passes by exit status 0, and nothing else. Whether it did. Its
    lines that begin with "note:" are worth seeing."""
    print(f"   {name}", flush=True)
    output = []
    process = start_process(results, name, command, limit_s, environment)
    if process is None:
        return False
    status = run_to_end(process, output.append)
    if status == 0 and not process.timed_out:
        results.passed += 1
        for line in output:
            if line.startswith("note: "):
                print(f"   {line}", flush=True)
        return True
    show(output)
    results.fail(name, how_it_ended(process, status, limit_s), output)
    return False


def show(output, most_lines=SHOWN_LINES):
    hidden = len(output) - most_lines
    if hidden > 0:
        print(f"     | ({hidden} lines before that)")
    for line in output[-most_lines:]:
        print(f"     | {line}")
