#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""One row of the table, inside its lab: runs the shell lines of server and client in an empty directory, then shows
what went through the NICs."""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from pair import run_pair  # noqa: E402

# Nobody waits for that long; a pair has limits of its own.
LIMIT_S = 600


def on_device(device, line):
    return ["hostnic", "run", "--device", device, "--", "sh", "-c", line]


def run_alone(line):
    try:
        return subprocess.run(["sh", "-c", line], stdin=subprocess.DEVNULL, check=False, timeout=LIMIT_S).returncode
    except subprocess.TimeoutExpired:
        print(f"--- not done after {LIMIT_S} s")
        return 1


def show_counters():
    shown = subprocess.run(["hostnic", "ctl", "show counters"], capture_output=True, text=True, check=True).stdout
    totals = {}
    for name, value in re.findall(r"^hnic\d+ (\w+) (\d+)$", shown, re.MULTILINE):
        totals[name] = totals.get(name, 0) + int(value)
    print("--- counters of all NICs")
    for name, value in totals.items():
        print(f"{name} {value}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="TCP port that the server listens on")
    parser.add_argument("--daemon", action="store_true", help="the server does not end by itself")
    parser.add_argument("--fails", action="store_true", help="it must not succeed")
    parser.add_argument("--may-fail", action="store_true", help="what it prints counts, not how it ends")
    parser.add_argument("--server", help="without one the client sees all NICs")
    parser.add_argument("client")
    options = parser.parse_args()
    os.environ["LC_ALL"] = "C"
    os.environ["PROGRAMS"] = str(Path(__file__).resolve().parent)
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        if options.server is None:
            status = run_alone(options.client)
        else:
            status = run_pair(options.port, on_device("hnic0", options.server),
                              on_device("hnic1", options.client), options.daemon)
        os.chdir("/")
    sys.stdout.flush()
    show_counters()
    if options.may_fail:
        print("--- it failed, as it may" if status else "--- it worked, as it may")
        return 0
    if options.fails:
        print("--- it fails as expected" if status else "--- it works now: the table says it does not")
        return 0 if status else 1
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main())
