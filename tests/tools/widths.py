#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks that pages can be read as they are: a line of text has at most 120 columns, a table's cell at most 200 characters.
Examples in fences and headings are as long as they are."""

import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
MAX_COLUMNS, MAX_CELL = 120, 200


def too_wide(text):
    """(number of the line, what is wrong) of each line."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("#"):
            continue
        elif line.startswith("|"):
            longest = max(len(cell.strip()) for cell in line.split("|"))
            if longest > MAX_CELL:
                yield number, f"a cell of {longest} characters (at most {MAX_CELL}): make a list of the table"
        elif len(line) > MAX_COLUMNS:
            yield number, f"{len(line)} columns (at most {MAX_COLUMNS})"


def check_widths():
    """Whether all pages are narrow enough."""
    pages = subprocess.run(["git", "ls-files", "*.md"], cwd=TOP, capture_output=True, text=True, check=False).stdout.split()
    pages = pages or [str(path.relative_to(TOP)) for path in [*TOP.glob("*.md"), *TOP.glob("docs/**/*.md")]]
    good = True
    for page in pages:
        for number, what in too_wide((TOP / page).read_text(encoding="utf-8")):
            print(f"FAIL {page}:{number}: {what}")
            good = False
    if good:
        print(f"ok   widths of {len(pages)} pages")
    return good


if __name__ == "__main__":
    sys.exit(0 if check_widths() else 1)
