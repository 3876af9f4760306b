# SPDX-License-Identifier: BSD-3-Clause
"""docs/performance/results.md from the CSVs of the last full runs: tables between two marks, plots
beside it.
A section that was not measured anew stays as it is."""

import csv
import dataclasses
import shutil

from e2e import plots
from e2e.figures import RATIO, Figure, show_size
from e2e.programs import TOP, BenchError

KEPT = TOP / "docs" / "performance"
DOCUMENT = KEPT / "results.md"
BEGIN = "<!-- ./run bench report writes from here -->\n"
END = "<!-- ./run bench report writes to here -->\n"
SHEETS = ["bandwidth", "rate", "latency", "latency-poll", "qps", "lcores", "peers", "udp", "udp-latency",
          "udp-rate", "ports", "ways", "ways-registration", "ways-fork", "memory-qp", "memory-mr",
          "start", "registration", "idle", "loss"]
MICRO = "micro"
PERCENT = "loss"


@dataclasses.dataclass
class Table:
    """A sheet as it was written."""
    name: str
    title: str
    measured: str
    x_name: str
    units: dict    # series -> unit
    figures: dict  # (x, series) -> Figure
    wrong: set     # (x, series)

    def places(self):
        return list(dict.fromkeys(x for x, _ in self.figures))

    def series(self, ratios=None):
        return [s for s, unit in self.units.items() if ratios in (None, unit == RATIO)]

    def place_text(self, x):
        if self.x_name == "message":
            return show_size(int(x))
        return f"{x} %" if self.x_name == PERCENT else x

    def points(self, series, scale=1.0):
        """The medians, and pairs of the smallest and largest, in the order of the places."""
        found = [self.figures.get((x, series)) for x in self.places()]
        return ([figure and figure.median * scale for figure in found],
                [(figure and figure.low * scale, figure and figure.high * scale)
                 for figure in found])


def split_comments(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    comments = [line.removeprefix("# ") for line in lines if line.startswith("# ")]
    if len(comments) < 2:
        raise BenchError(f"{path} does not say what it is: measure that section anew")
    return comments, [line for line in lines if not line.startswith("# ")]


def read(path):
    comments, lines = split_comments(path)
    table = Table(path.stem, comments[0], comments[1], "", {}, {}, set())
    for row in csv.DictReader(lines):
        x, series = row["x"], row["series"]
        table.x_name = row["x_name"]
        table.units[series] = row["unit"]
        table.figures[(x, series)] = Figure(float(row["median"]), float(row["min"]),
                                            float(row["max"]), int(row["runs"]))
        if row["error"] == "1":
            table.wrong.add((x, series))
    return table


def markdown(titles, rows):
    text = ["| " + " | ".join(titles) + " |", "|---|" + "---:|" * (len(titles) - 1)]
    text += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(text) + "\n"


def cell(table, x, series):
    figure = table.figures.get((x, series))
    if figure is None:
        return "-"
    text = figure.text(table.units[series]).replace("+-", "±").replace("%", " %")
    return text + (" **measurement error**" if (x, series) in table.wrong else "")


def section(table):
    lines = [[table.x_name, *map(table.place_text, table.places())]]
    lines += [[series, *(cell(table, x, series) for x in table.places())]
              for series in table.series()]
    if len(table.places()) > 4:
        lines = [list(column) for column in zip(*lines)]
    runs = max(figure.runs for figure in table.figures.values())
    heading = table.title[0].upper() + table.title[1:]
    return (f"### {table.name}\n\n{heading}. Medians of {runs} runs ± half their range; ratios turn "
            f"by turn. {table.measured}.\n\n" + markdown(lines[0], lines[1:]))


def micro_section(path):
    comments, lines = split_comments(path)
    rows = list(csv.reader(lines))
    return (f"### micro\n\n{comments[0][0].upper() + comments[0][1:]}. {comments[1]}.\n\n" +
            markdown(rows[0], rows[1:]))


def keep(results):
    """What was measured last goes beside the document."""
    KEPT.mkdir(exist_ok=True)
    for name in (*SHEETS, MICRO):
        if (measured := results / f"{name}.csv").exists():
            shutil.copyfile(measured, KEPT / measured.name)


def write(results):
    keep(results)
    tables = {name: read(path) for name in SHEETS if (path := KEPT / f"{name}.csv").exists()}
    if not tables:
        raise BenchError(f"there is nothing in {results}: ./run bench")
    drawn = plots.write(KEPT, tables)
    text = DOCUMENT.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise BenchError(f"{DOCUMENT} lacks the marks \"{BEGIN.strip()}\"")
    before, rest = text.split(BEGIN)
    # Those of an earlier report stay where gnuplot is missing.
    parts = [f"![{name}]({name}.svg)\n" for name in plots.PLOTS
             if (KEPT / f"{name}.svg").exists()]
    parts += [section(table) for table in tables.values()]
    if (micro := KEPT / f"{MICRO}.csv").exists():
        parts.append(micro_section(micro))
    DOCUMENT.write_text(before + BEGIN + "\n" + "\n".join(parts) + "\n" + END +
                        rest.split(END)[1], encoding="utf-8")
    print(f"{DOCUMENT}: {', '.join(tables)}; plots: {', '.join(drawn) or 'none'}")
