# SPDX-License-Identifier: BSD-3-Clause
"""Writes the table of docs/physical-nic.md from how the cases ended."""

from pathlib import Path

from pmd_ground import ETHERNET_MTU, LINKS, MTUS
from machine import ADAPTERS
from marked_page import write_part
from rows import DEEDS, LOSS_PERCENT, ROWS

PAGE = Path(__file__).resolve().parents[2] / "docs/physical-nic.md"
BEGIN = "<!-- tests/pmd/run_pmd_tests.py writes from here -->\n"
END = "<!-- tests/pmd/run_pmd_tests.py writes to here -->\n"
WORDS = {"ok": "ok", "FAIL": "**fails**", "skip": "not run"}


def cell(results, what, place, lossy):
    """How it ended with Ethernet's usual MTU and with jumbo frames; `-` was not meant to be run."""
    loss = f", loss {LOSS_PERCENT} %" if lossy else ""
    names = [f"{what} [{place}, MTU {ETHERNET_MTU[mtu]}{loss}]" for _, mtu in MTUS]
    ended = [WORDS.get(results.get(name), "-") for name in names]
    whole = results.get(f"{what} [{place}]")
    if whole is not None:
        return WORDS[whole]
    return "-" if ended == ["-", "-"] else " / ".join(ended)


def table(results):
    places = [place.name for place in (*ADAPTERS, *LINKS)]
    lines = ["| | " + " | ".join(places) + " |", "|---" * (len(places) + 1) + "|"]
    whats = [(row.name, False) for row in ROWS] + [(row.name, True) for row in ROWS if row.lossy]
    for what, lossy in [*whats, *((deed, False) for deed in DEEDS)]:
        name = (f"`{what}`" if "_" in what or what == "rping" else what) + (f", {LOSS_PERCENT} % loss" if lossy else "")
        lines.append(f"| {name} | " + " | ".join(cell(results, what, place, lossy) for place in places) + " |")
    return "\n".join(lines) + "\n"


def write(results):
    write_part(PAGE, BEGIN, END, table(results))
