# SPDX-License-Identifier: BSD-3-Clause
"""The study's plots, by gnuplot."""

import sys
from pathlib import Path

from tables import KIB, MIN_FOR_P99, POLICIES, loss_name, one, select, values

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from gnuplot import FRACTION, FROM_ZERO, LOGARITHMIC, Panel, draw  # noqa: E402


def microseconds(cell, name):
    few = cell["completed_messages"] < (MIN_FOR_P99 if name == "p99_ns" else 1)
    return None if few else cell[name] / 1000


def losses(rows):
    return [loss_name(ppm).removesuffix(" %") for ppm in values(rows, "loss_ppm")]


def by_loss(rows, value, **wanted):
    return [value(one(rows, loss_ppm=loss, **wanted)) for loss in values(rows, "loss_ppm")]


def completion_times(rows):
    rows = select(rows, study="single")
    panels = []
    for size in values(rows, "message_bytes"):
        panel = Panel(f"{size // KIB} KiB, one at a time", "loss, %", losses(rows),
                      "completion time, us", LOGARITHMIC)
        for colour, policy in enumerate(POLICIES):
            for name, dashed in (("p50_ns", False), ("p99_ns", True)):
                panel.add(f"{policy} {name[:3]}",
                          by_loss(rows, lambda cell, name=name: microseconds(cell, name),
                                  policy=policy, message_bytes=size), dashed, colour)
        panels.append(panel)
    return panels


def goodputs(rows):
    panels = []
    for study, size, title in (("stream", 32 * KIB, "1 QP, 32 KiB"),
                               ("stream", 256 * KIB, "1 QP, 256 KiB"),
                               ("qps64", 256 * KIB, "64 QPs, 256 KiB"),
                               ("incast64", 256 * KIB, "incast of 64, 256 KiB")):
        cells = select(rows, study=study, message_bytes=size)
        panel = Panel(title, "loss, %", losses(cells), "goodput / ((1 - p) lossless)",
                      FRACTION, key="bottom left")
        for policy in POLICIES:
            panel.add(policy, by_loss(cells, lambda cell: cell["fraction"], policy=policy))
        panels.append(panel)
    cells = select(rows, study="reads")
    panel = Panel("1 QP, READs", "loss, %", losses(cells), "goodput / ((1 - p) lossless)", FRACTION,
                  key="bottom left")
    for size in values(cells, "message_bytes"):
        panel.add(f"{size // KIB} KiB",
                  by_loss(cells, lambda cell: cell["fraction"], message_bytes=size))
    panels.append(panel)
    return panels


def overheads(rows):
    cells = select(rows, study="stream", message_bytes=256 * KIB)
    panels = []
    for name, title in (("spurious_percent", "sent again in vain, % of data packets"),
                        ("acks_per_packet", "ACKs per data packet")):
        panel = Panel("1 QP, 256 KiB", "loss, %", losses(cells), title, FROM_ZERO)
        for policy in POLICIES:
            panel.add(policy, by_loss(cells, lambda cell, name=name: cell[name], policy=policy))
        panels.append(panel)
    return panels


def reorderings(rows):
    rows = select(rows, study="reorder")
    distances = [d for d in values(rows, "reorder_distance_packets") if d]
    panels = []
    for ppm in (ppm for ppm in values(rows, "reorder_ppm") if ppm):
        for policy in POLICIES:
            panel = Panel(f"{policy}, {loss_name(ppm)} of packets late", "reorder degree, packets",
                          [str(d) for d in distances], "goodput / link", FRACTION,
                          key="bottom left")
            for window in values(rows, "window_packets"):
                panel.add(f"window {window}",
                          [one(rows, policy=policy, window_packets=window, reorder_ppm=ppm,
                               reorder_distance_packets=d)["fraction"] for d in distances])
            panels.append(panel)
    return panels


def write(directory, rows):
    draw(directory / "completion-time.svg", completion_times(rows), 2)
    draw(directory / "goodput.svg", goodputs(rows), 2)
    draw(directory / "overhead.svg", overheads(rows), 2)
    draw(directory / "reordering.svg", reorderings(rows), len(POLICIES))
