#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs `hostnic simulate` and reads what it writes:

  simulate_checks.py numbers HOSTNIC       its CSV: a full link without loss, and what loss costs
  simulate_checks.py same HOSTNIC          two equal calls write the same bytes, however many processes they have
  simulate_checks.py picture HOSTNIC       its SVG is well-formed, and has what the CSV has
  simulate_checks.py study HOSTNIC FILE    the recovery study is one call of it: the golden file of bench/recovery
"""

import csv
import io
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path

POLICIES = ["selective", "go-back-n", "whole-message", "roce-hold", "roce"]
# As an operator would ask; little work, since CI's machines are slow.
ISSUE = ["--policy", "all", "--impair", "reorder 0.1% distance 4", "--loss", "0..5%", "--points", "3",
         "--message", "64K", "--rate", "100Gbit", "--delay", "10us", "--messages", "100"]
SVG = "{http://www.w3.org/2000/svg}"


def simulate(hostnic, *options):
    done = subprocess.run([hostnic, "simulate", *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{options}: {done.returncode}: {done.stderr}"
    assert done.stderr == "", done.stderr
    return done.stdout


def rows_of(text):
    return [{name: int(value) if value.isdigit() else value for name, value in row.items()}
            for row in csv.DictReader(io.StringIO(text))]


def check_numbers(hostnic):
    rows = rows_of(simulate(hostnic, *ISSUE, "--csv"))
    assert [(row["policy"], row["loss_ppm"]) for row in rows] == [
        (policy, loss) for policy in POLICIES for loss in (0, 25000, 50000)], rows
    for row in rows:
        assert row["message_bytes"] == 65536 and row["delay_ns"] == 10_000 and row["rate_bps"] == 100_000_000_000, row
        assert row["impair"] == "rx reorder 0.1% distance 4", row["impair"]
        assert row["completed_messages"] <= row["messages"] == 100, row
        assert (row["lost_packets"] == 0) == (row["loss_ppm"] == 0), row
    # Without loss every payload fits beside its headers, and nothing is sent twice.
    full = rows_of(simulate(hostnic, "--policy", "selective,roce-hold", "--rate", "10Gbit", "--csv"))
    for row in full:
        assert row["result"] == "done" and row["lost_packets"] == row["resent_packets"] == row["timeouts"] == 0, row
        assert 0.97 * 1e10 * 4096 / 4166 < row["goodput_bps"] < 1e10, row
    # The median of one WRITE is the path's delay, both ways, and the time that its bytes take.
    single = rows_of(simulate(hostnic, "--depth", "1", "--messages", "100", "--delay", "1ms", "--csv"))[0]
    assert 2_000_000 < single["p50_ns"] < 2_015_000, single
    table = simulate(hostnic, "--loss", "0,1%", "--messages", "100").splitlines()
    assert len(table) == 4 and table[1].split()[:2] == ["policy", "loss"], table
    print("numbers are right")


def check_same(hostnic):
    outputs = {form: {simulate(hostnic, *ISSUE, form, "--jobs", jobs) for jobs in ("1", "2", "5")}
               for form in ("--csv", "--svg")}
    assert all(len(texts) == 1 for texts in outputs.values()), outputs
    assert outputs["--csv"] != {simulate(hostnic, *ISSUE, "--csv", "--seed", "8")}
    print("equal calls write the same bytes")


def check_picture(hostnic):
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "picture.svg"
        assert simulate(hostnic, *ISSUE, "--svg", "-o", str(file)) == ""
        root = xml.parse(file).getroot()
    texts = [element.text for element in root.iter(SVG + "text")]
    for wanted in [*POLICIES, "goodput, Gb/s", "loss", "0%", "2.5%", "5%"]:
        assert wanted in texts, f"{wanted} is not in {texts}"
    width, height = (float(root.get(name)) for name in ("width", "height"))
    taken = []
    for element in root.iter(SVG + "text"):
        x, y = float(element.get("x")), float(element.get("y"))
        words = len(element.text) * 6.5
        left = x - {"start": 0, "middle": words / 2, "end": words}[element.get("text-anchor")]
        assert 0 <= left and left + words <= width + 1 and 0 < y < height, f"{element.text} is cut off"
        for text, other_left, other_right, other_y in taken:
            assert abs(y - other_y) >= 11 or left >= other_right or left + words <= other_left, \
                f"{element.text!r} and {text!r} overlap"
        taken.append((element.text, left, left + words, y))
    # A line for each policy in each panel, and in the legend.
    curves = [element for element in root.iter(SVG + "path") if element.get("class") == "curve"]
    assert len(curves) == 5 * 4, len(curves)
    dashes = {element.get("style").partition("dasharray:")[2] for element in curves}
    assert len(dashes) == 5, dashes
    print("the picture is well-formed")


def check_study(hostnic, golden):
    told = simulate(hostnic, "--study", "single", "--golden", "--csv").splitlines()
    expected = [line for line in Path(golden).read_text(encoding="utf-8").splitlines()
                if line.startswith(("study,", "single,"))]
    assert told == expected, "\n".join(told)
    print("the study is what it was")


def main():
    what, *arguments = sys.argv[1:]
    {"numbers": check_numbers, "same": check_same, "picture": check_picture, "study": check_study}[what](*arguments)


if __name__ == "__main__":
    main()
