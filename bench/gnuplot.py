# SPDX-License-Identifier: BSD-3-Clause
"""Plots of lines over named places, by gnuplot: for the recovery study and ./run bench report."""

import subprocess

LOGARITHMIC = "set logscale y\nset yrange [*:*]"
FROM_ZERO = "unset logscale y\nset yrange [0:*]"
FRACTION = "unset logscale y\nset yrange [0:1.05]"
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#666666", "#000000"]


def number_text(value):
    return "NaN" if value is None else f"{value:.5g}"


class Panel:
    """Lines over named places on the x axis. None: no point."""

    def __init__(self, title, x_label, x_names, y_label, y_scale, key="top left"):
        self.title, self.x_label, self.y_label = title, x_label, y_label
        self.x_names, self.y_scale, self.key = x_names, y_scale, key
        self.lines = []

    def add(self, name, points, dashed=False, colour=None, spreads=None):
        """`spreads`: the smallest and the largest of each point, drawn as bars."""
        self.lines.append((name, points, dashed,
                           len(self.lines) % len(COLOURS) if colour is None else colour, spreads))

    def script(self, number):
        blocks, curves = [], []
        for i, (name, points, dashed, colour, spreads) in enumerate(self.lines):
            block = f"$p{number}_{i}"
            data = "\n".join(" ".join(map(number_text, (x, y, *(spreads[x] if spreads else ()))))
                             for x, y in enumerate(points))
            blocks.append(f"{block} << EOD\n{data}\nEOD\n")
            how = "1:2:3:4 with yerrorlines" if spreads else "1:2 with linespoints"
            curves.append(f"{block} using {how} lw 1.6 ps 0.4 pt 7 "
                          f"dt {2 if dashed else 1} lc rgb '{COLOURS[colour]}' title '{name}'")
        # A tick's text is a format.
        names = [name.replace("%", "%%") for name in self.x_names]
        ticks = ", ".join(f"'{name}' {i}" for i, name in enumerate(names))
        return (f"{''.join(blocks)}{self.y_scale}\nset title '{self.title}'\nset key {self.key}\n"
                f"set xlabel '{self.x_label}'\nset ylabel '{self.y_label}'\n"
                f"set xtics rotate by -45 ({ticks})\nset xrange [-0.3:{len(self.x_names) - 0.7}]\n"
                f"plot {', '.join(curves)}\n")


def draw(path, panels, columns, height=340, terminal="svg"):
    rows = -(-len(panels) // columns)
    script = (f"set terminal {terminal} size {440 * columns},{height * rows} font 'sans,11' "
              f"noenhanced background '#ffffff'\nset output '{path.name}'\n"
              "set grid ytics lc rgb '#dddddd'\nset key samplen 2 font ',9'\nset errorbars 0.5\n"
              f"set multiplot layout {rows},{columns}\n" +
              "".join(panel.script(i) for i, panel in enumerate(panels)) +
              "unset multiplot\n")
    subprocess.run(["gnuplot"], input=script, text=True, cwd=path.parent, check=True,
                   timeout=60)
