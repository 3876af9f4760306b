#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Two software NICs on a virtual wire, and stock verbs programs between them: first on a clean
wire, then on one that loses 1 % of the packets. A table at the end."""

import argparse
import json
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests" / "lab"))
import outputs  # noqa: E402
from harness import Ports  # noqa: E402
from pair import run_both  # noqa: E402

LIMIT_S = 300  # for what hangs
NETWORKS = [("clean", []), ("1 % loss", ["--loss", "1%"])]
TAIL_LINES = 25


def shown(value, unit):
    """perftest's clock may fail it on a busy machine, though all messages arrived."""
    return f"{value:.2f} {unit}" if outputs.is_figure(value) else f"no figure ({value:.2f})"


def bandwidth(output):
    """Message size and average bandwidth in perftest's table, or None."""
    rows = outputs.perftest_rows(output, outputs.BANDWIDTH_COLUMNS)
    return (rows[-1][0], shown(rows[-1][3], "Gb/s")) if rows else None


def latency(output):
    """Message size and typical latency in perftest's table, or None."""
    rows = outputs.perftest_rows(output, outputs.LATENCY_COLUMNS)
    return (rows[-1][0], shown(rows[-1][4], "us")) if rows else None


def pingpong(output):
    found = outputs.pingpong(output)
    return (found[0], shown(found[1], "us, both ways")) if found else None


# What is run, and how its result is read.
OPERATIONS = [
    (["ib_write_bw", "-F", "--report_gbits"], "WRITE bandwidth", bandwidth),
    (["ib_send_lat", "-F"], "SEND latency", latency),
    (["ib_read_bw", "-F", "--report_gbits"], "READ bandwidth", bandwidth),
    (["ibv_rc_pingpong", "-g", "0"], "SEND ping-pong", pingpong),
]


class DemoError(Exception):
    pass


class Lab:
    """Runs inside `hostnic lab`."""

    def __init__(self, build):
        self.hostnic = build / "hostnic"
        self.ports = Ports()

    def control(self, command):
        done = subprocess.run([self.hostnic, "ctl", command], capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            raise DemoError(f"hostnic ctl '{command}': {done.stderr.strip()}")
        return done.stdout

    def retransmitted(self):
        return sum(int(value) for value in re.findall(
            r"^\S+ retransmitted_packets (\d+)$", self.control("show counters"), re.M))

    def run_pair(self, command):
        """The client's output."""
        port = self.ports.next()
        server = [*command, "-p", str(port)]
        client = [*server, "127.0.0.1"]
        on = [[self.hostnic, "run", "--device", f"hnic{k}", "--"] for k in (0, 1)]
        for device, words in zip(on, (server, client)):
            print("   $ hostnic " + shlex.join(device[1:] + words), flush=True)
        # Warnings go elsewhere: they would be glued to a line of results.
        problem, outputs = run_both(port, on[0] + server, on[1] + client)
        if problem is not None:
            for name, output in outputs.items():
                print(f"   --- {name}")
                print("\n".join(output.rstrip().splitlines()[-TAIL_LINES:]), flush=True)
            raise DemoError(f"{command[0]}: {problem}")
        return outputs["client"]

    def measure(self, command, title, read):
        self.control("clear counters")
        start = time.monotonic()
        signal.alarm(LIMIT_S)
        output = self.run_pair(command)
        signal.alarm(0)
        result = read(output)
        if result is None:
            print(output)
            raise DemoError(f"{command[0]} ended well, and its output, above, has no line of results that is known here")
        size, value = result
        row = {"operation": title, "program": command[0], "bytes": size, "value": value,
               "retransmitted": self.retransmitted()}
        print(f"     {value} ({time.monotonic() - start:.1f} s)", flush=True)
        return row


def inside(build, results):
    def too_long(*_):
        raise DemoError(f"not done after {LIMIT_S} s")

    signal.signal(signal.SIGALRM, too_long)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    lab = Lab(build)
    results.write_text(json.dumps([lab.measure(*operation) for operation in OPERATIONS]))


def outside(build):
    if not (build / "hostnic").exists():
        raise DemoError(f"{build / 'hostnic'} is missing: build first (./run build)")
    rows = []
    with tempfile.TemporaryDirectory(prefix="hostnic-demo-") as directory:
        results = Path(directory) / "results.json"
        for name, options in NETWORKS:
            print(f"\n-- {name}: hostnic lab {' '.join([*options, '-- ...'])}", flush=True)
            done = subprocess.run(
                [build / "hostnic", "lab", *options, "--", sys.executable, __file__, "--build",
                 build, "--inside", results], check=False)
            if done.returncode != 0:
                raise DemoError(f"the lab ({name}) ended with status {done.returncode}")
            rows += [{"wire": name, **row} for row in json.loads(results.read_text())]
    print_table(rows)


def print_table(rows):
    columns = [("wire", "wire", "<"), ("program", "program", "<"), ("operation", "operation", "<"),
               ("bytes", "message bytes", ">"), ("value", "result", ">"),
               ("retransmitted", "retransmitted packets", ">")]
    widths = {key: max(len(title), *(len(str(row[key])) for row in rows))
              for key, title, _ in columns}
    print()
    print("  ".join(f"{title:{align}{widths[key]}}" for key, title, align in columns).rstrip())
    for row in rows:
        print("  ".join(f"{row[key]:{align}{widths[key]}}" for key, _, align in columns))


def main():
    parser = argparse.ArgumentParser(prog="./run demo", description=__doc__)
    parser.add_argument("--build", type=Path, default=TOP / "build", help=argparse.SUPPRESS)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    try:
        if options.inside is not None:
            inside(options.build, options.inside)
        else:
            outside(options.build.resolve())
    except DemoError as error:
        sys.exit(f"demo: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
