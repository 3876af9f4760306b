# SPDX-License-Identifier: BSD-3-Clause
"""Figures: medians of several runs with their spread, taken in turn, with ratios, as a table and as
CSV."""

import csv
import dataclasses
import statistics
import time
from typing import Callable

from e2e.parsers import NoResult
from e2e.programs import Unavailable, measured

CSV_TITLES = ["x_name", "x", "series", "unit", "median", "min", "max", "runs", "error"]
RATIO = "ratio"
# Two processes that copy the same differ by so much, by where their pages lie.
BOUND_TOLERANCE = 0.05


def si(value, unit):
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.2f} {prefix}{unit}"
    return f"{value:.2f} {unit}"


def show(value, unit):
    """A figure for people."""
    if unit == RATIO:
        return f"{value:.3f}" if value < 10 else f"{value:.1f}"
    if unit in ("B/s", "/s"):
        return si(value, unit)
    if unit == "bytes":
        return f"{value:.0f}"
    return f"{value:.2f} {unit}"


def show_size(size):
    for factor, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {name}"
    return f"{size} B"


def print_table(titles, rows):
    """The first column is text, the others are numbers."""
    widths = [max(len(str(row[i])) for row in [titles, *rows]) for i in range(len(titles))]
    for row in [titles, *rows]:
        cells = [f"{str(cell):<{width}}" if i == 0 else f"{str(cell):>{width}}"
                 for i, (cell, width) in enumerate(zip(row, widths))]
        print("  ".join(cells).rstrip(), flush=True)


@dataclasses.dataclass
class Job:
    """One run of a program; its figures go to `series`, one or as many as `measure` returns."""
    series: tuple
    measure: Callable

    def run(self):
        values = self.measure()
        values = values if isinstance(values, tuple) else (values,)
        assert len(values) == len(self.series), f"{self.series}: {len(values)} figures"
        return dict(zip(self.series, values))


def job(series, measure):
    return Job(series if isinstance(series, tuple) else (series,), measure)


@dataclasses.dataclass
class Figure:
    median: float
    low: float
    high: float
    runs: int

    @staticmethod
    def of(values):
        return Figure(statistics.median(values), min(values), max(values), len(values))

    def text(self, unit):
        # Half the distance between the smallest and the largest, in percent of the median.
        spread = (self.high - self.low) / 2 / self.median * 100 if self.median else 0
        return f"{show(self.median, unit)} +-{spread:.0f}%"


class Sheet:
    """The figures of one table: series at places x."""

    def __init__(self, name, title, x_name, unit, x_text=str):
        self.name, self.title, self.x_name, self.unit, self.x_text = (
            name, title, x_name, unit, x_text)
        self.values = {}      # (x, series) -> one value per turn
        self.comparisons = []  # (series, reference, place of the reference: None: the same)
        self.bound = None
        self.reported = set()

    def places(self):
        return list(dict.fromkeys(x for x, _ in self.values))

    def series(self):
        return list(dict.fromkeys(series for _, series in self.values))

    def compare(self, series, reference):
        """Also print series / reference, turn by turn."""
        self.comparisons.append((series, reference, None))

    def compare_places(self, series, x):
        """Also print what the series is as a fraction of what it is at x."""
        self.comparisons.append((series, series, x))

    def bounded_by(self, series):
        """Nothing can be faster than this series: what is was measured wrongly."""
        self.bound = series

    def skip(self, what, reason):
        """Said once: a missing program is missing at every place."""
        if (what, str(reason)) not in self.reported:
            self.reported.add((what, str(reason)))
            print(f"   skipped: {what}: {reason}", flush=True)

    def take_turns(self, x, jobs, repetitions):
        """Each job once, then each once more, ...: what slows the machine down hits them alike."""
        self.take_all_turns([(x, each) for each in jobs], repetitions)

    def take_all_turns(self, jobs, repetitions):
        """The same with (x, job): the places are compared with each other."""
        start = time.monotonic()
        for _ in range(repetitions):
            for x, each in list(jobs):
                try:
                    for series, value in each.run().items():
                        self.values.setdefault((x, series), []).append(value)
                except (Unavailable, NoResult) as error:
                    jobs.remove((x, each))
                    for series in each.series:
                        self.values.pop((x, series), None)
                    self.skip(", ".join(each.series), error)
        places = ", ".join(dict.fromkeys(self.x_text(x) for x, _ in jobs))
        print(f"   {self.name}, {self.x_name} {places}: {repetitions} x {len(jobs)} runs, "
              f"{time.monotonic() - start:.1f} s", flush=True)

    def figure(self, x, series):
        values = self.values.get((x, series))
        return Figure.of(values) if values else None

    def ratio(self, x, series, reference, at):
        """The median of the ratios of each turn."""
        pairs = zip(self.values.get((x, series), []),
                    self.values.get((x if at is None else at, reference), []))
        ratios = [value / of for value, of in pairs if of]
        return Figure.of(ratios) if ratios else None

    def is_wrong(self, x, series):
        if self.bound is None or series == self.bound:
            return False
        figure, bound = self.figure(x, series), self.figure(x, self.bound)
        # Each of its own turns may have been slow.
        return (figure is not None and bound is not None
                and figure.median > bound.high * (1 + BOUND_TOLERANCE))

    def wrong(self):
        return [(x, series) for x, series in self.values if self.is_wrong(x, series)]

    def cell(self, x, series):
        figure = self.figure(x, series)
        if figure is None:
            return "-"
        return figure.text(self.unit) + (" MEASUREMENT ERROR" if self.is_wrong(x, series) else "")

    def comparison_title(self, series, reference, at):
        return f"{series} / {reference if at is None else f'{self.x_name} {self.x_text(at)}'}"

    def comparison_cell(self, x, *comparison):
        figure = self.ratio(x, *comparison)
        return "-" if figure is None else figure.text(RATIO)

    def print(self):
        if not self.values:
            return
        print(f"\n-- {self.title}\n", flush=True)
        series = self.series()
        table = [[self.x_name, *map(self.x_text, self.places())]]
        table += [[series, *(self.cell(x, series) for x in self.places())]
                  for series in self.series()]
        table += [[self.comparison_title(*each),
                   *(self.comparison_cell(x, *each) for x in self.places())]
                  for each in self.comparisons
                  if any(self.ratio(x, *each) for x in self.places())]
        if len(self.places()) > len(self.series()):
            table = [list(column) for column in zip(*table)]
        print_table(table[0], table[1:])
        for x, each in self.wrong():
            print(f"MEASUREMENT ERROR: {each} at {self.x_text(x)}: faster than {self.bound}")

    def rows(self):
        def row(x, series, unit, figure, wrong):
            return [self.x_name, x, series, unit, f"{figure.median:.6g}", f"{figure.low:.6g}",
                    f"{figure.high:.6g}", figure.runs, int(wrong)]

        for x in self.places():
            for series in self.series():
                if (figure := self.figure(x, series)) is not None:
                    yield row(x, series, self.unit, figure, self.is_wrong(x, series))
            for comparison in self.comparisons:
                if (figure := self.ratio(x, *comparison)) is not None:
                    wrong = any(self.is_wrong(x, series) for series in comparison[:2])
                    yield row(x, self.comparison_title(*comparison), RATIO, figure, wrong)

    def write(self, directory):
        if not self.values:
            return
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{self.name}.csv"
        with open(path, "w", newline="", encoding="utf-8") as file:
            file.write(f"# {self.title}\n# {measured()}\n")
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(CSV_TITLES)
            writer.writerows(self.rows())
        print(f"(also in {path})")
