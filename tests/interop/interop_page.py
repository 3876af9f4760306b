# SPDX-License-Identifier: BSD-3-Clause
"""Writes the table of docs/interop.md from how the cases ended."""

from pathlib import Path

from interop_rows import ROWS
from marked_page import write_part

PAGE = Path(__file__).resolve().parents[2] / "docs/interop.md"
BEGIN = "<!-- tests/interop/run_interop_tests.py writes from here -->\n"
END = "<!-- tests/interop/run_interop_tests.py writes to here -->\n"
# Client, path MTU, whether frames are lost.
COLUMNS = [(client, mtu, lossy) for lossy in (False, True) for mtu in (1024, 4096)
           for client in ("hostnic", "rxe")]


def key(row, client, mtu, lossy):
    return f"{row.service}|{row.name}|{client}|{mtu}|{'lossy' if lossy else 'clean'}"


def cell(row, results, client, mtu, lossy):
    if lossy and not row.lossy:
        return "-"
    result = results.get(key(row, client, mtu, lossy), "skip")
    return {"ok": "ok", "skip": "not run"}.get(result, "**fails**")


def table(results):
    head = [f"{mtu}, {client} asks{', loss' if lossy else ''}" for client, mtu, lossy in COLUMNS]
    lines = ["| program | " + " | ".join(head) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for row in ROWS:
        cells = [cell(row, results, *column) for column in COLUMNS]
        name = f"`{row.name}`" + (" (UC)" if row.service == "UC" and "-c" not in row.name else "")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def write(results):
    write_part(PAGE, BEGIN, END, table(results))
