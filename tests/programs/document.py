# SPDX-License-Identifier: BSD-3-Clause
"""Writes docs/programs.md from the table and from a run of all of it."""

from table import NETWORKS, ROWS

HEAD = """# Programs

What unmodified programs of Debian 12 do on hostnic, each tried between two NICs of a lab, by a user without
privileges; `loss 1%`: every NIC loses one in a hundred packets that it receives. `ok` means: the program ended well and
said what it should, and the NICs' counters say that its bytes went through them (none by TCP or shared memory).
Written by `python3 tests/programs/run_programs.py --write-docs` on {date}, from `tests/programs/rows_*.py`, which
have the command lines.
`./run test --only programs` tries them all again.

A program runs as in these rows under `hostnic run` or in a lab, and needs no option on hostnic's account."""
FOOT = """
Not tried: programs of other distributions and newer ones (UCX 1.18, newer rdma-core, perftest's master, libfabric's
fabtests), NCCL, ceph and PyTorch.
"""


def cell(row, network, kept):
    if network != "clean" and not row.loses:
        return "-"
    result = kept.get(f"{row.name} [{network}]")
    if result is None or result["skip"]:
        return "not run"
    if "moved" not in result:
        return "**fails**"
    if row.fails:
        return "no"
    lost = result["moved"].get("impair_rx_dropped", 0)
    return f"ok ({lost} lost)" if network != "clean" and lost else "ok"


def line(cells):
    return "| " + " | ".join(text.replace("|", "\\|") for text in cells) + " |"


def write(path, kept, version):
    text = [HEAD.format(date=max((result["date"] for result in kept.values()), default="no day"))]
    group = None
    for row in ROWS:
        if row.group != group:
            group = row.group
            text += ["", f"## {group}", "", line(["program", "package", *NETWORKS, "remarks"]),
                     "|" + "---|" * (3 + len(NETWORKS))]
        against = kept.get(f"{row.name} [clean]", {}).get("skip") or ""
        text.append(line([row.name, f"{row.packages[0]} {version(row.packages[0]) or ''}".rstrip(),
                          *(cell(row, network, kept) for network in NETWORKS), row.fails or against or row.note]))
    path.write_text("\n".join(text) + "\n" + FOOT, encoding="utf-8")
