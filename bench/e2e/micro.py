# SPDX-License-Identifier: BSD-3-Clause
"""The parts of the data path (Google Benchmark)."""

import csv

from e2e.figures import print_table, si
from e2e.programs import BenchError, Unavailable, execute, measured, need

LIMIT_S = 600


def run(bench):
    program = need(bench.build / "bench" / "micro" / "hostnic-micro-bench")
    bench.results.mkdir(parents=True, exist_ok=True)
    raw = bench.results / "micro-google.csv"
    print("per operation: packet, PSN, element or round trip\n", flush=True)
    try:
        output = execute([program, f"--benchmark_min_time={bench.micro_seconds}",
                          f"--benchmark_filter={bench.filter}", "--benchmark_out_format=csv",
                          f"--benchmark_out={raw}"], LIMIT_S)
    except Unavailable as error:
        raise BenchError(error) from None
    # The context comes before the table.
    lines = raw.read_text(encoding="utf-8").splitlines()
    raw.unlink()
    first = next((i for i, line in enumerate(lines) if line.startswith("name,")), None)
    if first is None:
        print(output)
        raise BenchError(f"no benchmark is called \"{bench.filter}\"")
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
    write_csv(bench.results / "micro.csv", kept)


def write_csv(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        file.write(f"# the parts of the data path\n# {measured()}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["benchmark", "ns_per_operation", "bytes_per_second"])
        writer.writerows(rows)
    print(f"(also in {path})")
