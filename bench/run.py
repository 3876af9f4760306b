#!/usr/bin/env python3
"""The benchmarks: first the parts of the data path (Google Benchmark), then ib_write_bw between
two NICs of a lab beside plain memcpy of the same message sizes by one thread, taken in turn, as a
ratio. Prints tables, and leaves them as CSV in bench-results/."""

import argparse
import csv
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
PAIR = TOP / "tests" / "lab" / "pair.py"
# Message sizes in bytes, and how many of them: a fraction of a second each.
ITERATIONS = {2: 50_000, 4096: 50_000, 65536: 10_000, 1 << 20: 1_000, 8 << 20: 120}
# perftest wants more iterations than its queue is deep, and sends that many at once.
MAX_TX_DEPTH = 128
MEMCPY_SECONDS = 0.2
MICRO_SECONDS = 0.1
LAB_LIMIT_S = 120
MICRO_LIMIT_S = 600
# perftest's table: bytes, iterations, peak and average bandwidth, million messages per second.
RESULT_LINE = re.compile(
    r"^[ \t]*(\d+)[ \t]+\d+[ \t]+[\d.]+[ \t]+([\d.]+)[ \t]+([\d.]+)[ \t]*$", re.M)
# Below, two digits behind the point of a Gb/s say less than the message rate does.
MIN_GBITS = 1.0


class BenchError(Exception):
    pass


def need(program):
    if not program.exists():
        raise BenchError(f"{program} is missing: ./run bench builds it "
                         "(the micro benchmarks need libbenchmark-dev: ./run setup)")
    return program


def machine():
    """One line about where this was measured, and how busy that was."""
    model = "unknown CPU"
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    load = os.getloadavg()[0]
    cpus = len(os.sched_getaffinity(0))
    text = f"{model}, {cpus} CPUs, load {load:.1f}"
    if load > cpus / 2:
        text += ": BUSY, the numbers are too low and vary"
    return text


def execute(command, limit_s):
    """The program's output. Its children end with it: it leads a process group of its own."""
    process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               start_new_session=True)
    try:
        output, _ = process.communicate(timeout=limit_s)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise BenchError(f"{command[0]}: not done after {limit_s} s") from None
        raise
    if process.returncode != 0:
        print(output)
        raise BenchError(f"{command[0]} ended with status {process.returncode}")
    return output


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def si(value, unit):
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.2f} {prefix}{unit}"
    return f"{value:.2f} {unit}"


def print_table(titles, rows):
    """The first column is text, the others are numbers."""
    widths = [max(len(str(row[i])) for row in [titles, *rows]) for i in range(len(titles))]
    for row in [titles, *rows]:
        cells = [f"{str(cell):<{width}}" if i == 0 else f"{str(cell):>{width}}"
                 for i, (cell, width) in enumerate(zip(row, widths))]
        print("  ".join(cells).rstrip(), flush=True)


def write_csv(path, titles, rows):
    path.parent.mkdir(exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(titles)
        writer.writerows(rows)
    print(f"(also in {path})")


def run_micro(build, seconds, pattern, results):
    program = need(build / "bench" / "micro" / "hostnic-micro-bench")
    results.mkdir(exist_ok=True)
    raw = results / "micro-google.csv"
    print("\n-- The parts of the data path (per operation: packet, PSN, element or round trip)\n",
          flush=True)
    output = execute([program, f"--benchmark_min_time={seconds}",
                      f"--benchmark_filter={pattern}", "--benchmark_out_format=csv",
                      f"--benchmark_out={raw}"], MICRO_LIMIT_S)
    # The context comes before the table.
    lines = raw.read_text(encoding="utf-8").splitlines()
    raw.unlink()
    first = next((i for i, line in enumerate(lines) if line.startswith("name,")), None)
    if first is None:
        print(output)
        raise BenchError(f"no benchmark is called \"{pattern}\"")
    shown, kept = [], []
    for row in csv.DictReader(lines[first:]):
        name = row["name"].removesuffix("/real_time").removesuffix("/manual_time")
        if not row["per_op"]:
            shown.append([name, row["label"] or "-", "-"])
            continue
        per_op_ns = float(row["per_op"]) * 1e9
        rate = float(row["bytes_per_second"] or 0)
        shown.append([name, f"{per_op_ns:.1f}", si(rate, "B/s") if rate else "-"])
        kept.append([name, f"{per_op_ns:.3f}", f"{rate:.0f}" if rate else ""])
    print_table(["benchmark", "ns per operation", "rate"], shown)
    write_csv(results / "micro.csv", ["benchmark", "ns_per_operation", "bytes_per_second"], kept)


def measure_memcpy(build, size):
    """Bytes per second."""
    output = execute([need(build / "bench" / "e2e" / "memcpy-bw"), MEMCPY_SECONDS,
                      size], LAB_LIMIT_S)
    return float(output.split()[1])


def measure_write(build, size, iterations):
    """Bytes per second of ib_write_bw between hnic0 and hnic1 of a new lab."""
    hostnic = need(build / "hostnic")
    port = free_port()
    depth = min(MAX_TX_DEPTH, iterations)
    program = ["ib_write_bw", "-F", "--report_gbits", "-s", size, "-n", iterations, "-t", depth,
               "-p", port]
    output = execute(
        [hostnic, "lab", "--", sys.executable, PAIR, "--port", port,
         hostnic, "run", "--device", "hnic0", "--", *program, "----",
         hostnic, "run", "--device", "hnic1", "--", *program, "127.0.0.1"], LAB_LIMIT_S)
    found = [groups for groups in RESULT_LINE.findall(output) if int(groups[0]) == size]
    if not found:
        print(output)
        raise BenchError("ib_write_bw printed no result")
    gbits, million_messages = float(found[-1][1]), float(found[-1][2])
    return gbits * 1e9 / 8 if gbits >= MIN_GBITS else million_messages * 1e6 * size


def spread(values):
    """Half the distance between the smallest and the largest, in percent of the median."""
    return (max(values) - min(values)) / 2 / statistics.median(values) * 100


def compare(build, sizes, repetitions, scale, results):
    """How many sizes were measured wrongly."""
    print(f"\n-- ib_write_bw between two NICs of a lab, beside memcpy by one thread "
          f"(median of {repetitions}, taken in turn)\n", flush=True)
    shown, kept, errors = [], [], 0
    for size in sizes:
        iterations = max(int(ITERATIONS[size] * scale), 20)
        start = time.monotonic()
        copies, writes = [], []
        for _ in range(repetitions):
            copies.append(measure_memcpy(build, size))
            writes.append(measure_write(build, size, iterations))
        copy, write = statistics.median(copies), statistics.median(writes)
        # Every byte is copied at least once: what is faster than memcpy was not measured right.
        wrong = write > copy
        errors += wrong
        shown.append([size, si(write, "B/s"), f"{spread(writes):.0f} %", si(copy, "B/s"),
                      f"{spread(copies):.0f} %", f"{write / copy:.4f}",
                      "MEASUREMENT ERROR: faster than memcpy" if wrong else ""])
        kept.append([size, f"{write:.0f}", f"{spread(writes):.1f}", f"{copy:.0f}",
                     f"{spread(copies):.1f}", f"{write / copy:.5f}", int(wrong)])
        print(f"   {size} bytes, {repetitions} x {iterations} messages: "
              f"{time.monotonic() - start:.1f} s", flush=True)
    print()
    print_table(["message bytes", "ib_write_bw", "+-", "memcpy", "+-", "ratio", ""], shown)
    write_csv(results / "write-bw.csv",
              ["message_bytes", "ib_write_bw_bytes_per_second", "ib_write_bw_spread_percent",
               "memcpy_bytes_per_second", "memcpy_spread_percent", "ratio", "measurement_error"],
              kept)
    return errors


def positive(text):
    value = float(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"\"{text}\" is not above 0")
    return value


def count(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"\"{text}\" is not above 0")
    return value


def parse_options():
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__)
    parser.add_argument("--build", type=Path, default=TOP / "build-release",
                        help=argparse.SUPPRESS)
    parser.add_argument("--only", choices=["micro", "write"], help="one of the two parts")
    parser.add_argument("--filter", default=".", metavar="REGEX",
                        help="only the micro benchmarks whose names match")
    parser.add_argument("--min-time", type=positive, default=MICRO_SECONDS, metavar="SECONDS",
                        help="at least so long per micro benchmark (default %(default)s)")
    parser.add_argument("--sizes", type=int, nargs="+", choices=sorted(ITERATIONS),
                        default=sorted(ITERATIONS), metavar="BYTES",
                        help="message sizes of ib_write_bw (default: %(default)s)")
    parser.add_argument("--repetitions", type=count, default=3, metavar="N",
                        help="measurements per size (default %(default)s)")
    parser.add_argument("--scale", type=positive, default=1.0, metavar="F",
                        help="F times as many messages as usual (default %(default)s)")
    return parser.parse_args()


def main():
    options = parse_options()
    build = options.build.resolve()
    results = TOP / "bench-results"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.environ["LC_ALL"] = "C"
    errors = 0
    try:
        print(machine())
        if options.only != "write":
            run_micro(build, options.min_time, options.filter, results)
        if options.only != "micro":
            errors = compare(build, options.sizes, options.repetitions, options.scale, results)
    except (BenchError, OSError) as error:
        sys.exit(f"bench: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    if errors != 0:
        sys.exit(f"bench: {errors} of the message sizes were measured wrongly")


if __name__ == "__main__":
    main()
