#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The index of docs/transport.md: which sources cite each rule, and which tests are named after it.
`--write` writes it, a number prints each line that cites that rule."""

import argparse
import re
import sys
import textwrap

from references import TOP, TRANSPORT, Repository, cited_rules, prose, slug_of

BEGIN = "<!-- tests/tools/rules.py writes from here -->\n"
END = "<!-- tests/tools/rules.py writes to here -->\n"
TEST = re.compile(r"^TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)", re.MULTILINE)
NAMED = re.compile(r"Rule(\d+)(?:_|$)")
FAULT = re.compile(r"\bX\(\w+,\s*\"(\d+): ")
FAULTS = "tests/faults/faults.h"
WIDTH = 118
REMEDY = "python3 tests/tools/rules.py --write"


class Entry:
    """What there is of one rule."""

    def __init__(self, rule, name):
        self.link = f"[{rule}: {name}](#{slug_of(f'Rule {rule}: {name}')})"
        self.sources, self.tests, self.test_files, self.broken = [], [], [], 0

    def lines(self):
        """A heading, and below it a list."""
        tests = list(dict.fromkeys(self.tests)) + [f"`{path}`" for path in self.test_files]
        broken = f"broken on purpose: {self.broken}" if self.broken else ""
        said = (("cited in: ", [f"`{path}`" for path in self.sources]), ("tests: ", tests), ("", [broken] if broken else []))
        yield f"- {self.link}"
        for head, words in said:
            if words:
                yield from textwrap.wrap(head + ", ".join(words), WIDTH, initial_indent="  - ", subsequent_indent="    ",
                                         break_long_words=False, break_on_hyphens=False)


def test_name(suite, test, path):
    """Of a test that is named after a rule, how it is found: by its own name or by its suite's."""
    name = test if NAMED.match(test) else f"{suite}.*"
    return f"`{name}`" + (" (unit)" if path.startswith("tests/unit/") else "")


def is_source(path):
    return path.endswith((".h", ".cc", ".c")) and path != FAULTS


def gather(repository):
    """Rule -> Entry."""
    entries = {rule: Entry(rule, name) for rule, name in repository.rules.items()}
    for path in filter(is_source, repository.files):
        cited = {rule for _, rule in cited_rules(prose(path))} & entries.keys()
        named = set()
        if path.startswith("tests/"):
            for suite, test in TEST.findall((TOP / path).read_text(encoding="utf-8")):
                found = NAMED.match(test) or NAMED.match(suite)
                if found is not None and int(found.group(1)) in entries:
                    named.add(int(found.group(1)))
                    entries[int(found.group(1))].tests.append(test_name(suite, test, path))
            for rule in cited - named:
                entries[rule].test_files.append(path)
        else:
            for rule in cited:
                entries[rule].sources.append(path)
    for rule in FAULT.findall((TOP / FAULTS).read_text(encoding="utf-8")):
        if int(rule) in entries:
            entries[int(rule)].broken += 1
    return entries


def index(entries):
    lines = [line for entry in entries.values() for line in entry.lines()]
    return "\n" + "\n".join(lines) + "\n\n"


def check_index():
    """Whether the index is current, and no rule is without a test."""
    entries = gather(Repository())
    text = (TOP / TRANSPORT).read_text(encoding="utf-8")
    good = BEGIN + index(entries) + END in text
    if not good:
        print(f"FAIL {TRANSPORT}: its index is not current ({REMEDY} repairs it)")
    for rule, entry in entries.items():
        if not entry.tests and not entry.test_files:
            print(f"FAIL {TRANSPORT}: no test is named after rule {rule} or cites it")
            good = False
    if good:
        print(f"ok   index of {len(entries)} rules")
    return good


def write_index():
    path = TOP / TRANSPORT
    text = path.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, behind = rest.split(END)
    path.write_text(before + BEGIN + index(gather(Repository())) + END + behind, encoding="utf-8")


def print_citations(rule):
    repository = Repository()
    for path in repository.files:
        lines = dict(prose(path))
        for number in sorted({at for at, cited in cited_rules(lines.items()) if cited == rule}):
            print(f"{path}:{number}: {lines[number].strip()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rule", nargs="?", type=int)
    parser.add_argument("--write", action="store_true", help="write the index anew")
    options = parser.parse_args()
    if options.rule is not None:
        print_citations(options.rule)
    elif options.write:
        write_index()
    else:
        return 0 if check_index() else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
