#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks the format of all sources, pylint's errors in Python files, what sources and documents refer to,
which folder includes which, that each file names its license, that manuals and completion agree with
the programs, and runs clang-tidy on the sources that have not passed it yet as they are. --fix-format
reformats instead."""

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from layers import check_layers
from local_names import check_local_names
from mutants import check_mutants
from packaging import check_packaging
from references import check_references
from rules import check_index
import thirds
from widths import check_widths

TOP = Path(__file__).resolve().parents[2]
FOLDERS = ["protocol", "dataplane", "verbs-shim", "config", "packaging", "debian", "tests", "bench"]
SUFFIXES = {".c", ".cc", ".h"}
# The first line of each file that can have comments; the second one of a script.
LICENSE_LINE = re.compile(r"(//|#|/\*) SPDX-License-Identifier: BSD-3-Clause")
SCRIPT_SUFFIXES = {".py", ".sh", ".bash"}
MESON_FILES = {"meson.build", "meson_options.txt"}
# Other versions format and warn differently.
CLANG_FORMAT = "clang-format-14"
MESONS_UNIT = re.compile(r"-unity\d+\.cpp$")
MESONS_INCLUDE = re.compile(r"^#include<(.+)>$", re.MULTILINE)
CLANG_TIDY = "clang-tidy-14"
# Sources that clang-tidy looks at as one: most of its time goes into the headers they share.
GROUP_SIZE = 10
# clang reads g++'s command lines.
TIDY_ARGUMENTS = ["--quiet", "--extra-arg=-Wno-unknown-warning-option", "--extra-arg=-Wno-error"]
# What only g++ understands: its precompiled headers among others.
GCC_ONLY = re.compile(
    r" (-fpch-preprocess|-Winvalid-pch|-include \S+_pch\.h|-mmemset-strategy=\S+)(?= )")
# Of a compile command, what differs between the files of one target: names of inputs and outputs.
OWN_NAMES = re.compile(r" (-M[QF] \S+|-o \S+|-c \S+)(?= |$)")
NOISE = re.compile(r"\d+ warnings? (generated|treated)|^Suppressed|^Use -header-filter")


def sources():
    return sorted(path for folder in FOLDERS for path in (TOP / folder).rglob("*")
                  if path.suffix in SUFFIXES)


def require(program):
    if shutil.which(program) is None:
        sys.exit(f"{program} is not installed: ./run setup")


def check_format():
    """Whether all files are as clang-format would write them."""
    done = subprocess.run([CLANG_FORMAT, "--dry-run", "-Werror", *map(str, sources())],
                          capture_output=True, text=True, check=False)
    wrong = sorted({line.split(":")[0] for line in done.stderr.splitlines() if ": error: " in line})
    for path in wrong:
        print(f"FAIL format of {os.path.relpath(path, TOP)} (./run format repairs it)")
    if done.returncode != 0 and not wrong:
        print(f"FAIL format: {done.stderr.strip()}")
    if done.returncode == 0:
        print(f"ok   format of {len(sources())} files")
    return done.returncode == 0


def check_python():
    """Whether Python files are right as far as can be seen without running them: many lines are run
    by long tests and benchmarks only."""
    paths = sorted(path for folder in FOLDERS for path in (TOP / folder).rglob("*.py"))
    # Scripts import from their own folder and from those that they put into sys.path.
    imports = os.pathsep.join(sorted({str(path.parent) for path in paths}))
    done = subprocess.run(
        ["pylint", "--errors-only", "--jobs=0", "--disable=import-error",
         "--msg-template={path}:{line}: {msg}", *map(str, paths)],
        cwd=TOP, env={**os.environ, "PYTHONPATH": imports}, capture_output=True, text=True, check=False)
    wrong = [line for line in done.stdout.splitlines() if line and not line.startswith("***")]
    if done.returncode != 0 and not wrong:
        wrong = [f"of Python files: {done.stderr.strip()}"]
    for line in wrong:
        print(f"FAIL {line}")
    if done.returncode == 0:
        print(f"ok   pylint of {len(paths)} Python files")
    return done.returncode == 0


def licensed_files():
    """(path, its first two lines) of each that should name its license."""
    inside = [path for folder in FOLDERS for path in (TOP / folder).rglob("*")
              if "corpus" not in path.parts and "__pycache__" not in path.parts]
    for path in sorted([*inside, *TOP.glob("*"), *(TOP / ".ci").glob("*")]):
        if not path.is_file():
            continue
        with path.open(errors="replace") as file:
            first, second = file.readline(), file.readline()
        if path.suffix in SUFFIXES | SCRIPT_SUFFIXES or path.name in MESON_FILES or \
                first.startswith("#!"):
            yield path, first, second


def check_licenses():
    count, good = 0, True
    for path, first, second in licensed_files():
        count += 1
        if not LICENSE_LINE.match(second if first.startswith("#!") else first):
            print(f"FAIL license of {path.relative_to(TOP)}: its first line, behind a #!, is no "
                  "SPDX-License-Identifier")
            good = False
    if good:
        print(f"ok   license of {count} files")
    return good


class Compilation:
    """One source file of ours as the build compiles it."""

    def __init__(self, entry):
        self.directory = Path(entry["directory"])
        self.file = (self.directory / entry["file"]).resolve()
        self.name = str(self.file.relative_to(TOP))
        self.output = entry["output"]
        # The same in every clone.
        self.command = entry["command"].replace(str(TOP), "").replace(
            os.path.relpath(TOP, self.directory), "")
        self.clang_command = GCC_ONLY.sub(" ", entry["command"])
        self.flags = OWN_NAMES.sub("", self.clang_command)

    def key(self, headers, basis):
        digest = hashlib.sha256(basis)
        digest.update(self.command.encode())
        for path in [self.file, *headers]:
            digest.update(f"\n{path.relative_to(TOP)}\n".encode())
            digest.update(path.read_bytes())
        return digest.hexdigest()


def each_alone(entry):
    """A compilation, or those of the sources that meson compiles as one (-Dgrouped=true)."""
    if not MESONS_UNIT.search(entry["file"]):
        return [entry]
    joint = (Path(entry["directory"]) / entry["file"]).read_text()
    return [{**entry, "file": file, "command": entry["command"].replace(entry["file"], file)}
            for file in MESONS_INCLUDE.findall(joint)]


def compilations(build):
    listed = build / "compile_commands.json"
    if not listed.exists():
        sys.exit(f"{listed} is missing: build first (./run build)")
    by_file = {}
    for entry in (alone for each in json.loads(listed.read_text()) for alone in each_alone(each)):
        file = (Path(entry["directory"]) / entry["file"]).resolve()
        ours = TOP in file.parents and build not in file.parents and file.exists()
        # A precompiled header has its own compilation; assembly is not clang-tidy's.
        if ours and file.suffix not in (".h", ".S"):
            by_file.setdefault(file, Compilation(entry))
    return list(by_file.values())


def headers_of(build):
    """Object file -> our headers that it was compiled from, as ninja knows."""
    done = subprocess.run(["ninja", "-C", str(build), "-t", "deps"], capture_output=True,
                          text=True, check=False)
    found, current = {}, None
    for line in done.stdout.splitlines():
        if line.startswith("    "):
            path = (build / line.strip()).resolve()
            if current is not None and TOP in path.parents and path.exists():
                found[current].append(path)
        elif ": #deps" in line:
            current = line.split(": #deps")[0]
            found[current] = []
    return {output: sorted(set(paths)) for output, paths in found.items()}


def cache_directory():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = Path(base) / "hostnic-lint"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return path


class Tidy:
    """clang-tidy with a compile database of its own in `directory`."""

    def __init__(self, directory, groups):
        self.directory = Path(directory)
        self.joint = {}
        entries = []
        for number, group in enumerate(groups):
            for unit in group:
                entries.append(self.entry(unit, unit.file, unit.clang_command))
            if len(group) > 1:
                joint = self.directory / f"joint{number}{group[0].file.suffix}"
                joint.write_text("".join(f'#include "{unit.file}"  // NOLINT\n' for unit in group))
                self.joint[group[0]] = joint
                entries.append(self.entry(group[0], joint, f"{group[0].flags} -c {joint}"))
        (self.directory / "compile_commands.json").write_text(json.dumps(entries))

    @staticmethod
    def entry(unit, file, command):
        return {"directory": str(unit.directory), "file": str(file), "command": command}

    def run(self, file):
        """(whether it is clean, what clang-tidy says)."""
        done = subprocess.run([CLANG_TIDY, "-p", self.directory, f"--config-file={TOP}/.clang-tidy",
                               *TIDY_ARGUMENTS, str(file)], capture_output=True, text=True,
                              check=False)
        said = [line for line in (done.stdout + done.stderr).splitlines()
                if not NOISE.search(line)]
        return done.returncode == 0, said

    def check(self, group):
        """[(unit, whether it is clean, what clang-tidy says)] and the seconds that took."""
        start = time.monotonic()
        # Sources that don't go together, as two functions of one name, are no mistake.
        if len(group) > 1 and self.run(self.joint[group[0]])[0]:
            found = [(unit, True, []) for unit in group]
        else:
            found = [(unit, *self.run(unit.file)) for unit in group]
        return found, time.monotonic() - start


def grouped(units, jobs):
    """Those that are compiled with the same flags together; enough groups for all jobs."""
    by_flags = {}
    for unit in units:
        by_flags.setdefault(unit.flags, []).append(unit)
    size = max(1, min(GROUP_SIZE, -(-len(units) // (2 * jobs))))
    return [same[i:i + size] for same in by_flags.values() for i in range(0, len(same), size)]


def check_tidy(build, jobs, folders, third):
    version = subprocess.run([CLANG_TIDY, "--version"], capture_output=True, check=True).stdout
    basis = version + (TOP / ".clang-tidy").read_bytes() + shlex.join(TIDY_ARGUMENTS).encode()
    headers, cache = headers_of(build), cache_directory()
    passed, marks, good = 0, {}, True
    units = sorted((unit for unit in compilations(build) if unit.name.split("/")[0] in folders), key=lambda u: u.name)
    # Whole groups: what is dealt out singly would share no headers.
    for unit in (unit for group in thirds.dealt(grouped(units, jobs), third) for unit in group):
        # Without known headers nothing is known to be unchanged.
        known = headers.get(unit.output)
        mark = cache / unit.key(known, basis) if cache is not None and known else None
        if mark is not None and mark.exists():
            passed += 1
            os.utime(mark)
        else:
            marks[unit] = mark
    print(f"clang-tidy: {passed} files passed before as they are, {len(marks)} to check",
          flush=True)
    groups = grouped(marks, jobs)
    with tempfile.TemporaryDirectory(prefix="hostnic-lint-") as directory, \
            concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        tidy = Tidy(directory, groups)
        for done in concurrent.futures.as_completed(pool.submit(tidy.check, g) for g in groups):
            found, seconds = done.result()
            clean = [unit for unit, is_clean, _ in found if is_clean]
            if clean:
                print(f"  clean ({seconds:.1f} s) {' '.join(unit.name for unit in clean)}",
                      flush=True)
            for unit in clean:
                if marks[unit] is not None:
                    marks[unit].touch()
            for unit, is_clean, said in found:
                if not is_clean:
                    good = False
                    print(f"FAIL clang-tidy {unit.name}")
                    print("\n".join(f"     | {line}" for line in said[:40]), flush=True)
    if good:
        print(f"ok   clang-tidy of {passed + len(marks)} files")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, default=TOP / "build")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--fix-format", action="store_true")
    parser.add_argument("--product", action="store_true",
                        help="clang-tidy only for what is shipped: tests and benchmarks are half of "
                             "the files and, with GoogleTest's headers, most of the time")
    thirds.add_option(parser)
    options = parser.parse_args()
    require(CLANG_FORMAT)
    if options.fix_format:
        files = sources()
        subprocess.run([CLANG_FORMAT, "-i", *map(str, files)], check=True)
        print(f"{len(files)} files are formatted")
        return 0
    require(CLANG_TIDY)
    good = check_format()
    good = check_python() and good
    good = check_references() and good
    good = check_index() and good
    good = check_licenses() and good
    good = check_layers() and good
    good = check_local_names() and good
    good = check_mutants() and good
    good = subprocess.run([sys.executable, TOP / "tests/faults/plant.py", "--check"], check=False).returncode == 0 and good
    good = check_widths() and good
    good = check_packaging(options.build.resolve()) and good
    folders = [f for f in FOLDERS if not options.product or f not in ("tests", "bench")]
    good = check_tidy(options.build.resolve(), options.jobs, folders, options.third) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
