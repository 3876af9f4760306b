#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes a copy of the sources in which the faults of tests/faults/*.toml are planted: each change names what it is part
of, a file, a text that must be in it exactly once, and what stands there instead. What has not changed since the last
time keeps its time, so that little is built again."""

import argparse
import re
import subprocess
import sys
import tomllib
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
FAULTS = TOP / "tests" / "faults"
INCLUDE = '#include "tests/faults/faults.h"\n'
MARK = "tests/faults/PLANTED"
FIRST_PLACE = re.compile(r'^#(?:pragma once|include .*)\n', re.MULTILINE)
NAMED = re.compile(r"Fault::(\w+)")
LISTED = re.compile(r"^  X\((\w+),", re.MULTILINE)


class Wrong(Exception):
    """A change that can't be made; says which."""


def changes():
    """{file: [(text, instead)]} of all lists."""
    found = {}
    for path in sorted(FAULTS.glob("*.toml")):
        for change in tomllib.loads(path.read_text(encoding="utf-8"))["change"]:
            found.setdefault(change["file"], []).append((change["from"], change["to"]))
    return found


def planted(name, source, pairs):
    """The source with all changes made."""
    places = []
    for text, instead in pairs:
        if source.count(text) != 1:
            raise Wrong(f"{name}: {source.count(text)} times, not once:\n{text}")
        places.append((source.index(text), text, instead))
    end = len(source) + 1
    for begin, text, instead in sorted(places, reverse=True):
        if begin + len(text) > end:
            raise Wrong(f"{name}: two changes overlap at:\n{text}")
        source = source[:begin] + instead + source[begin + len(text):]
        end = begin
    if not any(NAMED.search(instead) for _, _, instead in places):
        return source
    first = FIRST_PLACE.search(source)
    return source[:first.end()] + INCLUDE + source[first.end():]


def check(top=TOP):
    """{file: planted source}; raises Wrong. Every fault that faults.h lists is planted, and no other."""
    sources = {}
    for name, pairs in changes().items():
        path = top / name
        if not path.is_file():
            raise Wrong(f"{name} is not there")
        sources[name] = planted(name, path.read_text(encoding="utf-8"), pairs)
    listed = set(LISTED.findall((FAULTS / "faults.h").read_text(encoding="utf-8")))
    named = {fault for pairs in changes().values() for _, instead in pairs for fault in NAMED.findall(instead)}
    for path in sorted(FAULTS.glob("*.toml")):
        for change in tomllib.loads(path.read_text(encoding="utf-8"))["change"]:
            if not set(change["name"].split(", ")) <= named:
                raise Wrong(f"{path.name}: {change['name']} is no fault")
    if listed != named:
        raise Wrong("in faults.h or in the lists only: " + ", ".join(sorted(listed ^ named)))
    return sources


def write(path, content):
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def files_of(top):
    """The names of all sources: of git where there is one, else of the tree without builds."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=top,
                            capture_output=True, check=False)
    if listed.returncode == 0:
        return [name for name in listed.stdout.decode().split("\0") if name and (top / name).is_file()]
    return [path.relative_to(top).as_posix() for path in top.rglob("*") if path.is_file()
            and not path.relative_to(top).parts[0].startswith(("build", "."))]


def plant(copy):
    """Makes the copy, or brings it up to date."""
    sources = check()
    names = files_of(TOP)
    for name in names:
        content = sources[name].encode() if name in sources else (TOP / name).read_bytes()
        write(copy / name, content)
        (copy / name).chmod((TOP / name).stat().st_mode & 0o777)
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
