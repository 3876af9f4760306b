# SPDX-License-Identifier: BSD-3-Clause
"""The tables of docs/recovery.md, between two marks in it."""

POLICIES = ["selective", "go-back-n", "whole-message", "roce-hold", "roce"]
BEGIN = "<!-- ./run bench recovery writes from here -->\n"
END = "<!-- ./run bench recovery writes to here -->\n"
# Of fewer transfers no 99th percentile is told.
MIN_FOR_P99 = 100
KIB = 1024


def select(rows, **wanted):
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def one(rows, **wanted):
    found = select(rows, **wanted)
    assert len(found) == 1, f"{len(found)} cells for {wanted}"
    return found[0]


def values(rows, name):
    return sorted({row[name] for row in rows})


def loss_name(ppm):
    return f"{ppm / 10000:g} %"


def table(titles, lines):
    text = ["| " + " | ".join(titles) + " |", "|" + "---:|" * len(titles)]
    text += ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join(text) + "\n"


def star(row):
    return "" if row["result"] == "done" else "\\*"


def microseconds(row, name):
    few = row["completed_messages"] < (MIN_FOR_P99 if name == "p99_ns" else 1)
    if few:
        return "-"
    value = row[name] / 1000
    return (f"{value:.1f}" if value < 1000 else f"{value:.0f}") + star(row)


def fraction(row):
    return "0" + star(row) if row["completed_messages"] == 0 else f"{row['fraction']:.3f}" + star(row)


def times(rows, sizes):
    """p50 and p99 of each policy, a line per size and loss."""
    titles = ["transfer", "loss", *(f"{policy} {p}" for policy in POLICIES
                                    for p in ("p50", "p99"))]
    lines = []
    for size in sizes:
        for loss in values(rows, "loss_ppm"):
            cells = [one(rows, policy=policy, message_bytes=size, loss_ppm=loss)
                     for policy in POLICIES]
            lines.append([f"{size // KIB} KiB", loss_name(loss),
                          *(microseconds(cell, name) for cell in cells
                            for name in ("p50_ns", "p99_ns"))])
    return table(titles, lines)


def completion_times(rows):
    rows = select(rows, study="single")
    return ("### One transfer at a time: completion time in us\n\n" +
            times(rows, values(rows, "message_bytes")) +
            "\n`-`: no transfer completed before the connection ended with RETRY_EXC_ERR, or too few "
            "for a p99.\n")


def goodput(rows, study, title):
    rows = select(rows, study=study)
    sizes = values(rows, "message_bytes")
    lines = []
    for loss in values(rows, "loss_ppm"):
        cells = [one(rows, policy=policy, message_bytes=size, loss_ppm=loss)
                 for policy in POLICIES for size in sizes]
        lines.append([loss_name(loss), *map(fraction, cells)])
    titles = ["loss", *(f"{policy} {size // KIB}K" for policy in POLICIES for size in sizes)]
    return f"### {title}: goodput as a fraction of (1 - p) x lossless `selective`\n\n" + table(titles, lines)


def latency_under_load(rows, study, title):
    rows = select(rows, study=study)
    return (f"### {title}: completion time in us\n\n" + times(rows, (64 * KIB, 256 * KIB)))


def overhead(rows):
    rows = select(rows, study="stream", message_bytes=256 * KIB)
    lines = []
    for loss in values(rows, "loss_ppm"):
        cells = [one(rows, policy=policy, loss_ppm=loss) for policy in POLICIES]
        lines.append([loss_name(loss), *(f"{cell['spurious_percent']:.2f} %" for cell in cells),
                      *(f"{cell['acks_per_packet']:.3f}" for cell in cells)])
    titles = ["loss", *(f"{policy}: spurious" for policy in POLICIES),
              *(f"{policy}: ACKs" for policy in POLICIES)]
    return ("### One QP, 256 KiB transfers: packets sent again that were not lost (of all data "
            "packets sent), ACKs per data packet\n\n" + table(titles, lines))


def reordering(rows):
    rows = select(rows, study="reorder")
    windows = values(rows, "window_packets")
    text = ""
    for ppm in (ppm for ppm in values(rows, "reorder_ppm") if ppm):
        lines = []
        for distance in values(rows, "reorder_distance_packets"):
            cells = [one(rows, policy=policy, window_packets=window, reorder_ppm=ppm if distance else 0,
                         reorder_distance_packets=distance) for policy in POLICIES for window in windows]
            lines.append([str(distance), *map(fraction, cells)])
        titles = ["degree", *(f"{policy} {window}" for policy in POLICIES for window in windows)]
        text += (f"### {loss_name(ppm)} of packets late by so many others, no loss: goodput as a "
                 "fraction of what the largest window reaches without, by window\n\n" + table(titles, lines) +
                 "\n")
    lines = []
    for window in windows:
        cells = [one(rows, policy="selective", window_packets=window, reorder_ppm=ppm,
                     reorder_distance_packets=distance)
                 for ppm in values(rows, "reorder_ppm") if ppm
                 for distance in values(rows, "reorder_distance_packets") if distance]
        lines.append([str(window), *(f"{cell['spurious_percent']:.2f}" for cell in cells)])
    titles = ["window", *(f"{loss_name(ppm)}, {distance}"
                          for ppm in values(rows, "reorder_ppm") if ppm
                          for distance in values(rows, "reorder_distance_packets") if distance)]
    return (text + "### The same, selective: percent of packets sent again, all in vain\n\n" +
            table(titles, lines))


def reads(rows):
    """READs, which recover in one way whatever the policy: goodput, and what it costs."""
    stream, single = select(rows, study="reads"), select(rows, study="single-reads")
    sizes = values(stream, "message_bytes")
    names = [f"{size // KIB}K" for size in sizes]
    goodputs, times_us = [], []
    for loss in values(stream, "loss_ppm"):
        cells = [one(stream, loss_ppm=loss, message_bytes=size) for size in sizes]
        goodputs.append([loss_name(loss), *map(fraction, cells),
                         *(f"{cell['spurious_percent']:.2f} %" for cell in cells),
                         *(f"{cell['acks_per_packet']:.3f}" for cell in cells)])
        cells = [one(single, loss_ppm=loss, message_bytes=size) for size in sizes]
        times_us.append([loss_name(loss), *(microseconds(cell, name) for cell in cells
                                            for name in ("p50_ns", "p99_ns"))])
    return ("### READs, one QP, 2 MiB outstanding: goodput as a fraction of (1 - p) x lossless, "
            "answers given again that were not lost, requests per answer\n\n" +
            table(["loss", *names, *(f"{name}: spurious" for name in names),
                   *(f"{name}: requests" for name in names)], goodputs) +
            "\n### READs, one at a time: completion time in us\n\n" +
            table(["loss", *(f"{name} {p}" for name in names for p in ("p50", "p99"))], times_us))


def write(document, rows):
    parts = [
        completion_times(rows),
        goodput(rows, "stream", "One QP, 2 MiB outstanding"),
        overhead(rows),
        goodput(rows, "qps64", "64 QPs between two NICs, one transfer each"),
        latency_under_load(rows, "qps64", "64 QPs between two NICs"),
        goodput(rows, "incast64", "64 senders, one receiver"),
        latency_under_load(rows, "incast64", "64 senders, one receiver"),
        reordering(rows),
        reads(rows),
    ]
    text = document.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    document.write_text(before + BEGIN + "\n" + "\n".join(parts) + "\n" + END + after,
                        encoding="utf-8")
