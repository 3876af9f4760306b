#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Programs that are broken on purpose, as substitutions in a copy of the sources: tests/mutants/*.toml. What users
build has nothing of it. By itself it checks that each substitution can still be made: its text stands in its file
exactly once."""

import dataclasses
import subprocess
import sys
import tomllib
from pathlib import Path

from source_copy import TOP, Wrong, changed, files_of, read, renew

MUTANTS = TOP / "tests" / "mutants"
# What the programs are made of, without tests.
SOURCES = ["protocol", "config", "dataplane", "verbs-shim", "packaging", "meson.build", "meson_options.txt"]
# Changes in these folders leave hostnicd as it is.
LIBRARY = "verbs-shim/"


@dataclasses.dataclass
class Mutant:
    name: str
    what: str
    set_ups: list
    changes: dict  # {file: [(text, instead)]}

    def sources(self):
        """{file: broken source}; raises Wrong."""
        return {name: changed(name, read(name), pairs) for name, pairs in self.changes.items()}

    def targets(self):
        """What has to be built anew."""
        library = all(name.startswith(LIBRARY) for name in self.changes)
        return ["libhostnic-verbs.so"] if library else ["libhostnic-verbs.so", "hostnicd"]


def load(name):
    """The mutants of a file, by its name without .toml."""
    table = tomllib.loads((MUTANTS / f"{name}.toml").read_text(encoding="utf-8"))
    mutants = []
    for each in table["mutant"]:
        changes = {}
        for change in each["change"]:
            changes.setdefault(change["file"], []).append((change["from"], change["to"]))
        mutants.append(Mutant(each["name"], each["what"], each["set_ups"], changes))
    return mutants


def check_mutants(names=None):
    """Whether each mutant's substitutions can be made."""
    good, count = True, 0
    for name in names or sorted(path.stem for path in MUTANTS.glob("*.toml")):
        for mutant in load(name):
            count += 1
            try:
                mutant.sources()
            except Wrong as wrong:
                print(f"FAIL mutant {mutant.name} (tests/mutants/{name}.toml): {wrong}")
                good = False
    if good:
        print(f"ok   substitutions of {count} mutants")
    return good


class Copy:
    """The sources in a folder of their own, with a build."""

    def __init__(self, folder):
        self.source, self.build = folder / "source", folder / "source" / "build"
        self.unbroken = {}

    def renew(self):
        """Makes the copy what the sources are now; what has not changed is not compiled anew."""
        renew(self.source, files_of(within=SOURCES))
        if not (self.build / "build.ninja").exists():
            subprocess.run(["meson", "setup", self.build, self.source, "-Dtests=false", "-Dwerror=false"], check=True,
                           stdout=subprocess.DEVNULL)

    def make(self, mutant):
        """Builds what a mutant has broken. The copy is whole again afterwards. None, or why it can't be built."""
        try:
            sources = mutant.sources()
        except Wrong as wrong:
            return str(wrong)
        try:
            renew(self.source, sources, sources)
            done = subprocess.run(["ninja", "-C", self.build, *mutant.targets()], capture_output=True, text=True,
                                  check=False)
            return None if done.returncode == 0 else done.stdout[-3000:] + done.stderr
        finally:
            renew(self.source, sources)


if __name__ == "__main__":
    sys.exit(0 if check_mutants() else 1)
