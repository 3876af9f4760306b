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

TOP = Path(__file__).resolve().parents[2]
MUTANTS = TOP / "tests" / "mutants"
# What the programs are made of, without tests.
SOURCES = ["protocol", "config", "dataplane", "verbs-shim", "packaging", "meson.build", "meson_options.txt"]
# Changes in these folders leave hostnicd as it is.
LIBRARY = "verbs-shim/"


@dataclasses.dataclass
class Change:
    file: str
    old: str
    new: str

    def wrong(self, top):
        """None, or why it can't be made."""
        path = top / self.file
        if not path.is_file():
            return f"{self.file} does not exist"
        count = path.read_text(encoding="utf-8").count(self.old)
        return None if count == 1 else f"{self.file} has {count} times, not once: {self.old.strip().splitlines()[0]}"


@dataclasses.dataclass
class Mutant:
    name: str
    what: str
    set_ups: list
    changes: list

    def wrong(self, top):
        return next((why for change in self.changes if (why := change.wrong(top)) is not None), None)

    def targets(self):
        """What has to be built anew."""
        library = all(change.file.startswith(LIBRARY) for change in self.changes)
        return ["libhostnic-verbs.so"] if library else ["libhostnic-verbs.so", "hostnicd"]


def load(name):
    """The mutants of a file, by its name without .toml."""
    table = tomllib.loads((MUTANTS / f"{name}.toml").read_text(encoding="utf-8"))
    return [Mutant(each["name"], each["what"], each["set_ups"],
                   [Change(change["file"], change["from"], change["to"]) for change in each["change"]])
            for each in table["mutant"]]


def check_mutants(names=None):
    """Whether each mutant's substitutions can be made."""
    good, count = True, 0
    for name in names or sorted(path.stem for path in MUTANTS.glob("*.toml")):
        for mutant in load(name):
            count += 1
            if (why := mutant.wrong(TOP)) is not None:
                print(f"FAIL mutant {mutant.name} (tests/mutants/{name}.toml): {why}")
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
        listed = subprocess.run(["git", "ls-files", "-z", *SOURCES], cwd=TOP, capture_output=True, text=True, check=False)
        names = [name for name in listed.stdout.split("\0") if name and (TOP / name).is_file()] or [
            str(path.relative_to(TOP)) for source in SOURCES for path in [TOP / source, *(TOP / source).rglob("*")]
            if path.is_file()]
        for name in names:
            target, content = self.source / name, (TOP / name).read_bytes()
            if not target.is_file() or target.read_bytes() != content:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
                target.chmod((TOP / name).stat().st_mode)
        if not (self.build / "build.ninja").exists():
            subprocess.run(["meson", "setup", self.build, self.source, "-Dtests=false", "-Dwerror=false"], check=True,
                           stdout=subprocess.DEVNULL)

    def make(self, mutant):
        """Builds what a mutant has broken. The copy is whole again afterwards. None, or what the compiler says."""
        before = {}
        try:
            for change in mutant.changes:
                path = self.source / change.file
                before.setdefault(path, path.read_text(encoding="utf-8"))
                path.write_text(path.read_text(encoding="utf-8").replace(change.old, change.new), encoding="utf-8")
            done = subprocess.run(["ninja", "-C", self.build, *mutant.targets()], capture_output=True, text=True,
                                  check=False)
            return None if done.returncode == 0 else done.stdout[-3000:] + done.stderr
        finally:
            for path, text in before.items():
                path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(0 if check_mutants() else 1)
