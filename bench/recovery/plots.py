"""The study's plots, by gnuplot."""

import subprocess

from tables import KIB, MIN_FOR_P99, POLICIES, loss_name, one, select, values

LOGARITHMIC = "set logscale y\nset yrange [*:*]"
FROM_ZERO = "unset logscale y\nset yrange [0:*]"
FRACTION = "unset logscale y\nset yrange [0:1.05]"
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"]


class Panel:
    """Lines over named places on the x axis. None: no point."""

    def __init__(self, title, x_label, x_names, y_label, y_scale, key="top left"):
        self.title, self.x_label, self.y_label = title, x_label, y_label
        self.x_names, self.y_scale, self.key = x_names, y_scale, key
        self.lines = []

    def add(self, name, points, dashed=False, colour=None):
        self.lines.append((name, points, dashed, len(self.lines) if colour is None else colour))

    def script(self, number):
        blocks, curves = [], []
        for i, (name, points, dashed, colour) in enumerate(self.lines):
            block = f"$p{number}_{i}"
            data = "\n".join(f"{x} {'NaN' if y is None else f'{y:.5g}'}"
                             for x, y in enumerate(points))
            blocks.append(f"{block} << EOD\n{data}\nEOD\n")
            curves.append(f"{block} using 1:2 with linespoints lw 1.6 ps 0.4 pt 7 "
                          f"dt {2 if dashed else 1} lc rgb '{COLOURS[colour]}' title '{name}'")
        ticks = ", ".join(f"'{name}' {i}" for i, name in enumerate(self.x_names))
        return (f"{''.join(blocks)}{self.y_scale}\nset title '{self.title}'\nset key {self.key}\n"
                f"set xlabel '{self.x_label}'\nset ylabel '{self.y_label}'\n"
                f"set xtics rotate by -45 ({ticks})\nset xrange [-0.3:{len(self.x_names) - 0.7}]\n"
                f"plot {', '.join(curves)}\n")


def draw(path, panels, columns):
    rows = -(-len(panels) // columns)
    script = (f"set terminal svg size {440 * columns},{340 * rows} font 'sans,11' "
              f"background '#ffffff'\nset output '{path.name}'\n"
              "set grid ytics lc rgb '#dddddd'\nset key samplen 2 font ',9'\n"
              f"set multiplot layout {rows},{columns}\n" +
              "".join(panel.script(i) for i, panel in enumerate(panels)) +
              "unset multiplot\n")
    subprocess.run(["gnuplot"], input=script, text=True, cwd=path.parent, check=True,
                   timeout=60)


def microseconds(cell, name):
    few = cell["completed"] < (MIN_FOR_P99 if name == "p99_ns" else 1)
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
    distances = [d for d in values(rows, "reorder_distance") if d]
    panels = []
    for ppm in (ppm for ppm in values(rows, "reorder_ppm") if ppm):
        for policy in POLICIES:
            panel = Panel(f"{policy}, {loss_name(ppm)} of packets late", "reorder degree, packets",
                          [str(d) for d in distances], "goodput / link", FRACTION,
                          key="bottom left")
            for window in values(rows, "window"):
                panel.add(f"window {window}",
                          [one(rows, policy=policy, window=window, reorder_ppm=ppm,
                               reorder_distance=d)["fraction"] for d in distances])
            panels.append(panel)
    return panels


def write(directory, rows):
    draw(directory / "completion-time.svg", completion_times(rows), 2)
    draw(directory / "goodput.svg", goodputs(rows), 2)
    draw(directory / "overhead.svg", overheads(rows), 2)
    draw(directory / "reordering.svg", reorderings(rows), 3)
