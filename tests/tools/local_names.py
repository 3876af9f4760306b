#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks the sources of each folder that a grouped build (-Dgrouped=true) compiles together: a function that is local to
one has a name of its own. Another of that name, of a sibling or of a header, could be called in its place there, and
nothing would say so."""

import collections
import re
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
MESON_FILE = "meson.build"
GROUPED = re.compile(r"override_options: grouped\b|\bgrouped_unit_kwargs \+|kwargs: grouped_unit_kwargs\b")
# A function at the outermost level, as clang-format leaves them: nothing stands before its type.
FUNCTION = re.compile(r"^(?:template <[^\n]*>\n)?(?!return\b|namespace\b|using\b|typedef\b)[A-Za-z_\[][\w:<>,\[\] ]*?[\s&*]+"
                      r"(\w+)\([^;{}]*?\)[^;{}()]*[;{]", re.MULTILINE)
LOCAL = re.compile(r"^namespace \{\n(.*?)^\}  // namespace$", re.MULTILINE | re.DOTALL)
NAMESPACE = re.compile(r"^namespace ([\w:]+) \{", re.MULTILINE)
TOPS = ["protocol", "dataplane", "verbs-shim", "config", "tests"]
HEADERS = ["protocol", "dataplane", "config"]
KEYWORDS = {"TEST", "TEST_F", "TEST_P", "if", "for", "while", "switch", "main"}


def functions(text):
    return {name for name in FUNCTION.findall(text) if name not in KEYWORDS}


def grouped_folders():
    """Not those of the copies that build directories have."""
    return sorted(path.parent for top in TOPS for path in (TOP / top).rglob(MESON_FILE)
                  if GROUPED.search(path.read_text(encoding="utf-8")))


def common_names(tops):
    """Name -> headers whose functions every source that includes them sees unqualified."""
    names = collections.defaultdict(set)
    for top in tops:
        for header in (TOP / top).rglob("*.h"):
            text = header.read_text(encoding="utf-8")
            if set(NAMESPACE.findall(text)) == {"hostnic"}:
                for name in functions(text):
                    names[name].add(header)
    return names


def repeated(folder, common):
    """(name, files) of each name that is not one source's own."""
    owners = collections.defaultdict(set)
    for source in folder.rglob("*.cc"):
        for local in LOCAL.findall(source.read_text(encoding="utf-8")):
            for name in functions(local):
                owners[name].add(source)
    for name, sources in sorted(owners.items()):
        files = sorted(sources | common.get(name, set()))
        if len(files) > 1:
            yield name, [str(path.relative_to(TOP)) for path in files]


def check_local_names():
    """Whether sources that are compiled together keep their functions apart."""
    good = True
    folders = grouped_folders()
    for folder in folders:
        is_test = folder.is_relative_to(TOP / "tests")
        for name, files in repeated(folder, common_names(HEADERS + (["verbs-shim"] if is_test else []))):
            print(f"FAIL {name}() is local to one of these, and the others have it too: {', '.join(files)}")
            good = False
    if good:
        print(f"ok   local names of {len(folders)} folders that are compiled in groups")
    return good and bool(folders)


if __name__ == "__main__":
    sys.exit(0 if check_local_names() else 1)
