# SPDX-License-Identifier: BSD-3-Clause
"""Pages of docs/ that have a part which a program writes, between two marks."""


def write_part(page, begin, end, part):
    """Puts `part` between the marks, which stay."""
    text = page.read_text(encoding="utf-8")
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"{page} has to have once {begin.strip()} and {end.strip()}")
    before, rest = text.split(begin)
    page.write_text(before + begin + part + end + rest.split(end)[1], encoding="utf-8")
