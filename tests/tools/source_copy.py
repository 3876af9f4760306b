# SPDX-License-Identifier: BSD-3-Clause
"""Copies of the sources that differ from them in a few texts, for tests of the tests: faults of the transport
(tests/faults) and mutants of the library (tests/mutants)."""

import subprocess
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]


class Wrong(Exception):
    """A change that can't be made; says which."""


def changed(name, source, pairs):
    """The source of that name with each (text, instead) of pairs made, whose text stands in it exactly once."""
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
    return source


def read(name, top=TOP):
    """A source's text."""
    path = top / name
    if not path.is_file():
        raise Wrong(f"{name} is not there")
    return path.read_text(encoding="utf-8")


def files_of(top=TOP, within=()):
    """The names of all sources, or of those within these files and folders: of git where there is one, else of the tree
    without builds."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *within],
                            cwd=top, capture_output=True, check=False)
    if listed.returncode == 0:
        return [name for name in listed.stdout.decode().split("\0") if name and (top / name).is_file()]
    names = (path.relative_to(top) for path in top.rglob("*") if path.is_file())
    return [name.as_posix() for name in names if not name.parts[0].startswith(("build", "."))
            and (not within or name.parts[0] in within)]


def write(path, content):
    """Writes a file, unless that is its content already: what is built of it is built anew only if it has changed."""
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def renew(copy, names, instead=None):
    """Makes the copy what these sources are now, or {name: text} in their place."""
    for name in names:
        write(copy / name, instead[name].encode() if instead and name in instead else (TOP / name).read_bytes())
        (copy / name).chmod((TOP / name).stat().st_mode & 0o777)
