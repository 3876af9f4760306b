#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes a copy of the sources in which the faults of tests/faults/*.toml are planted: each change names what it is part
of, a file, a text that must be in it exactly once, and what stands there instead. What has not changed since the last
time keeps its time, so that little is built again."""

import argparse
import re
import sys
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from source_copy import TOP, Wrong, changed, files_of, read, renew, write  # noqa: E402

FAULTS = TOP / "tests" / "faults"
INCLUDE = '#include "tests/faults/faults.h"\n'
MARK = "tests/faults/PLANTED"
FIRST_PLACE = re.compile(r'^#(?:pragma once|include .*)\n', re.MULTILINE)
NAMED = re.compile(r"Fault::(\w+)")
LISTED = re.compile(r"^  X\((\w+),", re.MULTILINE)


def changes():
    """{file: [(text, instead)]} of all lists."""
    found = {}
    for path in sorted(FAULTS.glob("*.toml")):
        for change in tomllib.loads(path.read_text(encoding="utf-8"))["change"]:
            found.setdefault(change["file"], []).append((change["from"], change["to"]))
    return found


def planted(name, source, pairs):
    """The source with all changes made."""
    source = changed(name, source, pairs)
    if not any(NAMED.search(instead) for _, instead in pairs):
        return source
    first = FIRST_PLACE.search(source)
    return source[:first.end()] + INCLUDE + source[first.end():]


def check(top=TOP):
    """{file: planted source}; raises Wrong. Every fault that faults.h lists is planted, and no other."""
    sources = {}
    for name, pairs in changes().items():
        sources[name] = planted(name, read(name, top), pairs)
    listed = set(LISTED.findall((FAULTS / "faults.h").read_text(encoding="utf-8")))
    named = {fault for pairs in changes().values() for _, instead in pairs for fault in NAMED.findall(instead)}
    for path in sorted(FAULTS.glob("*.toml")):
        for change in tomllib.loads(path.read_text(encoding="utf-8"))["change"]:
            if not set(change["name"].split(", ")) <= named:
                raise Wrong(f"{path.name}: {change['name']} is no fault")
    if listed != named:
        raise Wrong("in faults.h or in the lists only: " + ", ".join(sorted(listed ^ named)))
    return sources


def plant(copy):
    """Makes the copy, or brings it up to date."""
    sources = check()
    names = files_of()
    renew(copy, names, sources)
    write(copy / MARK, b"")
    kept = {*names, MARK}
    for path in copy.rglob("*"):
        if path.is_file() and path.relative_to(copy).as_posix() not in kept:
            path.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only look whether all changes can be made")
    parser.add_argument("copy", nargs="?", type=Path, help="where the copy is made")
    options = parser.parse_args()
    if options.check == (options.copy is not None):
        parser.error("either --check or where to make the copy")
    try:
        if options.check:
            check()
            print("ok   all faults can be planted")
        else:
            plant(options.copy.resolve())
    except Wrong as wrong:
        print(f"FAIL faults: {wrong}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
