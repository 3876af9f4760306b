# SPDX-License-Identifier: BSD-3-Clause
"""Runs the programs that are measured, and says where and on what."""

import datetime
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
PAIR = TOP / "tests" / "lab" / "pair.py"
PAIR_LIMIT_S = 120
TAIL_LINES = 12


class BenchError(Exception):
    """The benchmarks can't go on."""


class Unavailable(Exception):
    """One program can't be measured; the others can."""


def need(program):
    if not program.exists():
        raise BenchError(f"{program} is missing: ./run bench builds it "
                         "(the micro benchmarks need libbenchmark-dev: ./run setup)")
    return program


def stock(name, package):
    """A program of a Debian package."""
    if shutil.which(name) is None:
        raise Unavailable(f"{name} is not installed (package {package}; ./run bench installs it)")
    return name


def processors():
    model = "unknown CPU"
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return f"{model}, {len(os.sched_getaffinity(0))} CPUs"


def measured():
    """One line about when and where: for what is kept."""
    commit = "?"
    if shutil.which("git") is not None:
        done = subprocess.run(["git", "-C", TOP, "describe", "--always", "--dirty"],
                              capture_output=True, text=True, check=False)
        commit = done.stdout.strip() or "?"
    return f"{datetime.date.today().isoformat()}, {commit}, {processors()}"


def machine():
    """One line about where this is measured, and how busy that is."""
    load = os.getloadavg()[0]
    cpus = len(os.sched_getaffinity(0))
    text = f"{processors()}, load {load:.1f}"
    if load > cpus / 2:
        text += ": BUSY, the numbers are too low and vary"
    return text


def end_group(process):
    """Ends the process and its children: it leads a process group of its own."""
    for which in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, which)
        except ProcessLookupError:
            return
        try:
            process.communicate(timeout=5)
            return
        except subprocess.TimeoutExpired:
            continue


def tail(output):
    lines = [f"     | {line}" for line in output.rstrip().splitlines()[-TAIL_LINES:]]
    return "".join("\n" + line for line in lines)


def execute(command, limit_s, environment=None):
    """The program's output; Unavailable if it fails."""
    # A group to end, but not a session: between these, yields don't count (docs/core-sharing.md, "Sessions").
    words = [str(word) for word in command]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace",
                               process_group=0,
                               env={**os.environ, **(environment or {})})
    try:
        output, _ = process.communicate(timeout=limit_s)
    except BaseException as error:
        end_group(process)
        if isinstance(error, subprocess.TimeoutExpired):
            raise Unavailable(f"not done after {limit_s} s: {' '.join(words)}") from None
        raise
    if process.returncode != 0:
        raise Unavailable(f"status {process.returncode}: {' '.join(words)}{tail(output)}")
    return output


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def pair_command(port, server, client):
    return [sys.executable, PAIR, "--port", port, *server, "----", *client]


def client_part(output):
    return output.split("--- client", 1)[-1]


def run_pair(port, server, client, environment=None, limit_s=PAIR_LIMIT_S):
    """What the client printed."""
    return client_part(execute(pair_command(port, server, client), limit_s, environment))
