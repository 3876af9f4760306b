# SPDX-License-Identifier: BSD-3-Clause
"""The plots of docs/performance/results.md."""

from gnuplot import FROM_ZERO, LOGARITHMIC, Panel, draw

from e2e.programs import Unavailable, stock

GIGA = 1e-9
MEMCPY = "memcpy"
P99 = " p99"
# Below the panel, which is higher for that: lines are everywhere in it.
KEY = "below maxcols 2"
HEIGHT = 440


def panel(table, title, y_label, y_scale, series, scale=1.0):
    """Every series of the table that is asked for, with its spread."""
    made = Panel(title, table.x_name, [table.place_text(x) for x in table.places()], y_label, y_scale,
                 KEY)
    for name in series:
        points, spreads = table.points(name, scale)
        made.add(name, points, spreads=spreads)
    return made


def bandwidth(table):
    rates, ratios = table.series(ratios=False), table.series(ratios=True)
    return [panel(table, "one queue pair, MTU 4096", "GB/s", LOGARITHMIC, rates, GIGA),
            panel(table, "as a fraction of memcpy", "", FROM_ZERO, ratios)]


def latency(table):
    series = [name for name in table.series(ratios=False)]
    return [panel(table, "median, adaptive lcore", "us", LOGARITHMIC,
                  [name for name in series if not name.endswith(P99)]),
            panel(table, "99th percentile, adaptive lcore", "us", LOGARITHMIC,
                  [name for name in series if name.endswith(P99)])]


def peers(table):
    rates, ratios = table.series(ratios=False), table.series(ratios=True)
    return [panel(table, "beside other software, one machine", "GB/s", LOGARITHMIC, rates, GIGA),
            panel(table, "ratios", "", LOGARITHMIC + "\nset ytics add ('1' 1)", ratios)]


def queue_pairs(table):
    return [panel(table, "WRITEs of 4 KiB, round-robin", "GB/s", FROM_ZERO,
                  table.series(ratios=False), GIGA)]


def lcores(table):
    return [panel(table, "two NICs on 1 or 2 lcores", "as a fraction of one lcore", FROM_ZERO,
                  table.series(ratios=True))]


def loss(table):
    return [panel(table, "goodput against loss, one queue pair", "GB/s", FROM_ZERO,
                  table.series(ratios=False), GIGA)]


# Plot -> the sheets on it with the functions that make their panels.
PLOTS = {
    "bandwidth": [("bandwidth", bandwidth)],
    "latency": [("latency", latency)],
    "peers": [("peers", peers)],
    "scaling": [("qps", queue_pairs), ("lcores", lcores)],
    "goodput": [("loss", loss)],
}


def write(directory, tables, terminal="svg", suffix=".svg"):
    """The names of the plots that there are tables for."""
    try:
        stock("gnuplot", "gnuplot-nox")
    except Unavailable as error:
        print(f"skipped: plots: {error}")
        return []
    drawn = []
    for name, sheets in PLOTS.items():
        panels = [each for sheet, make in sheets if sheet in tables for each in make(tables[sheet])]
        if panels:
            draw(directory / f"{name}{suffix}", panels, len(panels), HEIGHT, terminal)
            drawn.append(name)
    return drawn
