# SPDX-License-Identifier: BSD-3-Clause
"""Reads the outputs of the programs that are measured. A parser that finds nothing raises: a figure
is read or there is none."""

import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "tools"))
import outputs  # noqa: E402

# Below, two digits behind the point of a Gb/s say less than the message rate does.
MIN_GBITS = 1.0
MIB = 1 << 20
# fi_pingpong: bytes as 64k, sent, acknowledged, total, time, MB/s (of 10^6), us per transfer.
FI_LINE = re.compile(rf"^\S+[ \t]+\S+[ \t]+=\S+[ \t]+\S+[ \t]+\S+s[ \t]+({outputs.NUMBER})[ \t]+({outputs.NUMBER})"
                     r"[ \t]+\S+[ \t]*$", re.M)


class NoResult(Exception):
    """The output holds no such figure."""

    def __init__(self, what, output):
        super().__init__(f"no {what} in the output:\n{output[-1500:]}")


def positive(value, what, output):
    if not 0 < value < float("inf"):
        raise NoResult(what, output)
    return value


def perftest_bandwidth(output, size):
    """Bytes per second and messages per second."""
    rows = [row for row in outputs.perftest_rows(output, outputs.BANDWIDTH_COLUMNS) if row[0] == size]
    if not rows:
        raise NoResult(f"perftest bandwidth of {size} bytes", output)
    gbits, messages = rows[-1][3], rows[-1][4] * 1e6
    rate = gbits * 1e9 / 8 if gbits >= MIN_GBITS else messages * size
    return (positive(rate, "perftest bandwidth above 0", output),
            positive(messages, "perftest message rate above 0", output))


def perftest_latency(output, size):
    """Median and 99th percentile in microseconds."""
    rows = [row for row in outputs.perftest_rows(output, outputs.LATENCY_COLUMNS) if row[0] == size]
    if not rows:
        raise NoResult(f"perftest latency of {size} bytes", output)
    return (positive(rows[-1][4], "perftest latency above 0", output),
            positive(rows[-1][7], "perftest latency above 0", output))


def memcpy_rate(output, size):
    """Bytes per second of memcpy-bw."""
    for line in output.splitlines():
        fields = line.split()
        if len(fields) == 2 and fields[0] == str(size):
            return positive(float(fields[1]), "memcpy rate above 0", output)
    raise NoResult(f"memcpy rate of {size} bytes", output)


def ucx(output):
    """The last row of ucx_perftest -f -v: its columns by name, the percentile as `percentile`."""
    lines = [line.strip() for line in output.splitlines()]
    for i, line in enumerate(lines):
        if line.startswith("iterations,") and i + 1 < len(lines):
            names, values = line.split(","), lines[i + 1].split(",")
            try:
                row = dict(zip(names, map(float, values)))
            except ValueError:
                break
            row["percentile"] = next((v for n, v in row.items() if n.endswith("percentile_lat")), 0)
            return row
    raise NoResult("ucx_perftest row", output)


def ucx_bandwidth(output, size):
    """Bytes per second. Its own MB/s has two digits: too few for small messages."""
    rate = ucx(output).get("overall_mr", 0) * size
    return positive(rate, "ucx_perftest rate above 0", output)


def ucx_latency(output):
    """Microseconds, of the percentile that -R asked for."""
    return positive(ucx(output)["percentile"], "ucx_perftest latency above 0", output)


def iperf3(output):
    """Bytes per second that arrived."""
    try:
        report = json.loads(output[output.index("{"):output.rindex("}") + 1])
        rate = report["end"]["sum_received"]["bits_per_second"] / 8
    except (ValueError, KeyError, TypeError):
        raise NoResult("iperf3 report", output) from None
    return positive(rate, "iperf3 rate above 0", output)


def fi_pingpong(output):
    """Bytes per second and microseconds per transfer (half a round trip)."""
    found = FI_LINE.findall(output)
    if not found:
        raise NoResult("fi_pingpong row", output)
    return (positive(float(found[-1][0]) * 1e6, "fi_pingpong rate above 0", output),
            positive(float(found[-1][1]), "fi_pingpong latency above 0", output))


def named(output, name):
    """The numbers after `name` on a line of one of our own programs."""
    for line in output.splitlines():
        fields = line.split()
        if fields and fields[0] == name:
            try:
                return [float(field) for field in fields[1:]]
            except ValueError:
                break
    raise NoResult(f"line \"{name}\"", output)


def pairs_latency(output):
    """Median and 99th percentile in microseconds of hostnic-pairs."""
    median, p99 = named(output, "latency_us")
    return (positive(median, "latency above 0", output), positive(p99, "latency above 0", output))


def pairs_bandwidth(output):
    """Bytes per second of hostnic-pairs."""
    return positive(named(output, "bytes_per_second")[0], "rate above 0", output)


def testpmd_rate(output, frame):
    """Packets per second that dpdk-testpmd's port received in its best second; frames of another
    size than asked for are no result."""
    rates = [float(rate) for rate in re.findall(r"Rx-pps:\s*(\d+)", output)]
    counts = [(int(packets), int(size)) for packets, size in
              re.findall(r"RX-packets:\s*(\d+)\s+RX-missed:\s*\d+\s+RX-bytes:\s*(\d+)", output)]
    if not rates or not counts:
        raise NoResult("testpmd rate", output)
    packets, size = counts[-1]
    # A few others pass by: ARP, IPv6.
    if packets == 0 or abs(size / packets - frame) > frame / 10:
        raise NoResult(f"testpmd frame of {frame} bytes", output)
    return positive(max(rates), "testpmd rate above 0", output)
