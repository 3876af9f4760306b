#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Instructions per operation of the micro benchmarks, counted by valgrind's callgrind, which emulates
a CPU of its own: the same on every machine. Compares them with bench/micro/instructions.csv, as the
tests do: fails if an operation costs over 3 % more than recorded, and says so if it costs that much
less.

--update records what it costs now. --profile NAME shows which functions one operation spends its
instructions in. Nothing is compared (exit status 77) where the compiler, its options or a library is
another than those of the record, or where callgrind can't emulate AVX2."""

import argparse
import collections
import csv
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
RECORD = TOP / "bench" / "micro" / "instructions.csv"
PROGRAM = Path("bench") / "micro" / "hostnic-micro-bench"
# Of each benchmark: many packets each, and what happens once (a cache filled) is lost among them.
ITERATIONS = 500
LIMIT_S = 240
TOLERANCE_PERCENT = 3
# Two threads: what they do depends on time.
LEFT_OUT = "-^ring_round_trip"
SKIPPED = 77
# The title that hostnic-micro-bench gives a file, and the sum of its costs.
TITLE = re.compile(r"^desc: Trigger: Client Request: (\S+) (\d+)$", re.M)
TOTAL = re.compile(r"^totals: (\d+)$", re.M)
# callgrind_annotate's table: "1,234 (12.3%)  FILE:FUNCTION [PROGRAM]".
OWN_COST = re.compile(r"^ *([\d,]+) \( ?[\d.]+%\)  (?!PROGRAM)[^:\s]+:(\S.*?)(?: \[[^]]*\])?$", re.M)
SPAN_EXTENT = re.compile(r", 18446744073709551615ul")


class CountError(Exception):
    pass


class Skip(Exception):
    pass


def output_of(command, environment=None):
    result = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env={**os.environ, **(environment or {})}, timeout=LIMIT_S, check=False)
    if result.returncode != 0:
        raise CountError(f"{command[0]} ended with status {result.returncode}\n{result.stdout}")
    return result.stdout


def about(program):
    """What counts depend on, beside our sources."""
    try:
        valgrind = output_of(["valgrind", "--version"]).strip()
    except FileNotFoundError:
        raise Skip("valgrind is not installed: ./run setup") from None
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        flags = next((line.split() for line in lines if line.startswith("flags")), [])
    # With it, callgrind always emulates the same CPU.
    if "avx2" not in flags:
        raise Skip("this CPU has no AVX2, so callgrind emulates another CPU than was recorded")
    return f"{output_of([program, '--about']).strip()}, {valgrind}"


def count(program, names, directory):
    """{name: (instructions per operation, callgrind's file)}."""
    output = output_of(
        ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--collect-atstart=no",
         f"--callgrind-out-file={directory}/counts", program, "--count", ITERATIONS,
         # In full they end in "/iterations:500", some in "/manual_time" after that.
         f"--benchmark_filter={names.replace('$', '/iterations:')}"],
        # Functions of libraries are looked up when the program starts, not where they are first
        # called; and nobody's settings choose among memcpy()s.
        {"LD_BIND_NOW": "1", "GLIBC_TUNABLES": ""})
    counts = {}
    for path in Path(directory).glob("counts.*"):
        text = path.read_text(encoding="utf-8")
        title = TITLE.search(text)
        if title is not None:
            counts[title.group(1)] = (int(TOTAL.search(text).group(1)) / int(title.group(2)), path)
    if not counts:
        raise CountError(f"nothing was counted; no benchmark is called \"{names}\"?\n{output}")
    return counts


def load():
    """(what it was counted with, {name: instructions per operation})."""
    if not RECORD.exists():
        return None, {}
    with open(RECORD, encoding="utf-8") as file:
        first = file.readline().removeprefix("# ").strip()
        return first, {row["operation"]: float(row["instructions"])
                       for row in csv.DictReader(file)}


def store(environment, counts):
    with open(RECORD, "w", newline="", encoding="utf-8") as file:
        file.write(f"# {environment}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["operation", "instructions"])
        for name in sorted(counts, key=natural):
            writer.writerow([name, f"{counts[name]:.1f}"])
    print(f"{RECORD}: {len(counts)} operations")


def natural(name):
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def show(recorded, now):
    width = max(map(len, now))
    print(f"{'instructions per operation':<{width}}  {'recorded':>10}  {'now':>10}  change")
    for name in sorted(now, key=natural):
        before = recorded.get(name)
        known = "-" if before is None else f"{before:.1f}"
        change = "" if before is None else f"{percent(before, now[name]):+6.1f} %"
        print(f"{name:<{width}}  {known:>10}  {now[name]:>10.1f}  {change}".rstrip())


def percent(before, now):
    return 100 * (now - before) / before


def compare(recorded, now, complete):
    """Whether nothing got dearer. `complete`: all benchmarks were counted."""
    good = True
    for name in sorted(now, key=natural):
        if name not in recorded:
            print(f"FAIL {name}: {now[name]:.1f} instructions, not recorded. Record them: ./run "
                  "bench instructions --update")
            good = False
            continue
        change = percent(recorded[name], now[name])
        what = f"{name}: {now[name]:.1f} instructions, recorded {recorded[name]:.1f} ({change:+.1f} %)"
        if change > TOLERANCE_PERCENT:
            print(f"FAIL {what}, at most {TOLERANCE_PERCENT} % more. If they are well spent: ./run "
                  "bench instructions --update")
            good = False
        elif change < -TOLERANCE_PERCENT:
            print(f"note: {what}. Keep it: ./run bench instructions --update")
    for name in sorted(set(recorded) - set(now), key=natural) if complete else []:
        print(f"FAIL {name}: recorded, but there is no such benchmark any more. Forget it: ./run "
              "bench instructions --update")
        good = False
    return good


def profile(program, name, functions):
    """Of one operation, per function: its own instructions, not those it calls for."""
    with tempfile.TemporaryDirectory() as directory:
        path = count(program, f"^{name}$", directory).get(name, [None])[-1]
        if path is None:
            raise CountError(f"no benchmark is called \"{name}\"")
        text = path.read_text(encoding="utf-8")
        table = output_of(["callgrind_annotate", "--threshold=100", "--auto=no", path])
    operations = int(TITLE.search(text).group(2))
    # What of a function was inlined from other files is counted by file.
    sums = collections.Counter()
    for instructions, function in OWN_COST.findall(table):
        sums[SPAN_EXTENT.sub("", function)] += int(instructions.replace(",", ""))
    print(f"{sum(sums.values()) / operations:.1f} instructions per {name}")
    for function, instructions in sums.most_common(functions):
        print(f"{instructions / operations:10.1f}  {function}")


def run(options):
    program = options.program or options.build.resolve() / PROGRAM
    environment = about(program)
    if options.profile is not None:
        profile(program, options.profile, options.functions)
        return 0
    counted_with, recorded = load()
    if counted_with != environment and not options.update:
        raise Skip(f"recorded with {counted_with}, this is {environment}")
    with tempfile.TemporaryDirectory() as directory:
        now = {name: counted[0] for name, counted in
               count(program, options.filter or LEFT_OUT, directory).items()}
    show(recorded, now)
    if options.update:
        kept = recorded if options.filter and counted_with == environment else {}
        store(environment, {**kept, **now})
        return 0
    return 0 if compare(recorded, now, not options.filter) else 1


def parse_options():
    parser = argparse.ArgumentParser(prog="./run bench instructions", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=TOP / "build", help=argparse.SUPPRESS)
    parser.add_argument("--program", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--filter", metavar="REGEX", help="only benchmarks whose names match")
    parser.add_argument("--update", action="store_true", help="record what comes out now")
    parser.add_argument("--profile", metavar="NAME", help="of one benchmark, e.g. nic_both/64")
    parser.add_argument("--functions", type=int, default=40, metavar="N",
                        help="so many of a profile (default %(default)s)")
    return parser.parse_args()


def main():
    try:
        return run(parse_options())
    except Skip as reason:
        print(f"not compared: {reason}")
        return SKIPPED
    except (CountError, OSError, subprocess.SubprocessError) as error:
        sys.exit(f"bench instructions: {error}")


if __name__ == "__main__":
    sys.exit(main())
