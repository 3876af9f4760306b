#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Programs that people use on verbs, as Debian ships them, each row of table.py in a lab of its own, clean and at 1 %
loss, as an ordinary user. The NICs' counters must show that the bytes went through them."""

import datetime
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lab")]
import document  # noqa: E402
import ordinary_user  # noqa: E402
from harness import (  # noqa: E402
    PAIR, REPOSITORY, Case, Ports, no_trouble, parse, require_programs, run_cases, select)
from table import NETWORKS, ROWS  # noqa: E402

NICS = ["hostnic", "hostnicd", "libhostnic-verbs.so"]
PARTS_OF_ROWS = ["in_lab.py", "iser.sh", "qemu_migration.py", "memory_check.py", "memory_check.go", "MemoryCheck.java",
                 "memory_exchange_jni.c", "memory_guests.py"]
# Own programs and libraries: name, compiler, source, options.
OWN = [("mpi-check-openmpi", "mpicxx.openmpi", "mpi_check.cc"), ("mpi-check-mpich", "mpicxx.mpich", "mpi_check.cc"),
       ("shmem-check", "oshc++", "shmem_check.cc"),
       ("libmemory-exchange.so", "gcc", "memory_exchange.c", "-shared", "-fPIC", "-libverbs"),
       ("libmemory-guest.so", "gcc", "memory_guest.c", "-shared", "-fPIC", "-L{home}", "-lmemory-exchange")]


class Packages:
    """Installs what is missing, all at once where that is possible."""

    def __init__(self, wanted, may_install):
        missing = [p for p in wanted if not self.version(p)]
        if missing and may_install:
            self.install(missing)

    @staticmethod
    def version(package):
        shown = subprocess.run(["dpkg-query", "-W", "-f", "${db:Status-Abbrev} ${Version}", package],
                               capture_output=True, text=True, check=False).stdout
        found = re.match(r".i. (\S+)", shown)
        return found.group(1) if found else None

    @staticmethod
    def install(missing):
        as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
        if as_root and shutil.which("sudo") is None:
            return
        print(f"   installing {' '.join(missing)}", flush=True)

        def apt(*words):
            return subprocess.run([*as_root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", *words],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False).returncode == 0
        apt("update")
        wanted = ["install", "-y", "--no-install-recommends"]
        if not apt(*wanted, *missing):
            for package in missing:
                apt(*wanted, package)

    def reason_against(self, row):
        missing = [p for p in row.packages if not self.version(p)]
        return f"not to be had here: {' '.join(missing)}" if missing else None


def moved(output):
    section = output.partition("--- counters of all NICs\n")[2]
    return {name: int(value) for name, value in re.findall(r"^(\w+) (\d+)$", section, re.MULTILINE)}


def check_of(row):
    def check(output):
        for pattern in row.expect:
            if not re.search(pattern, output):
                return f"the output does not match {pattern!r}"
        counters = moved(output)
        for name, least in ({} if row.fails else row.moves).items():
            if counters.get(name, 0) < least:
                return f"{name} is {counters.get(name, 0)}: at least {least} should have gone through the NICs"
        return no_trouble(output.partition("--- counters")[0]) if row.strict and not row.fails else None
    return check


class Maker:
    def __init__(self, options, home):
        self.options = options
        self.home = home
        self.ports = Ports()

    def case(self, row, network):
        port = self.ports.next()
        inside = [ordinary_user.python(), self.home / "in_lab.py"]
        for line, words in ((row.server, ["--server", row.server]), (row.fails, ["--may-fail" if row.by_timing else "--fails"]),
                            (row.daemon, ["--daemon"]), ("{port}" in row.server and row.listens, ["--port", port])):
            inside += words if line else []
        inside.append(row.client)
        command = [*ordinary_user.prefix(), self.home / "hostnic", "lab", "--seed", self.options.seed,
                   *NETWORKS[network], *row.nics, "--", *inside]
        return Case(f"{row.name} [{network}]", [str(word).replace("{port}", str(port)) for word in command],
                    row.limit_s, row.ci and network == "clean", check_of(row),
                    {**ordinary_user.environment(self.home), "HWLOC_COMPONENTS": "-gl"}, slow=not row.ci)


def compile_own(home):
    for name, compiler, source, *words in OWN:
        if shutil.which(compiler):
            subprocess.run([compiler, "-O2", "-o", home / name, HERE / source,
                            *(word.format(home=home) for word in words)], check=True)


def cells(rows):
    return [(row, network) for row in rows for network in NETWORKS if network == "clean" or row.loses]


def add_options(parser):
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N",
                        help="run N labs at a time (default: as many as CPUs)")
    parser.add_argument("--no-install", action="store_true", help="skip rows whose packages are missing")
    parser.add_argument("--write-docs", action="store_true",
                        help="then write docs/programs.md; what is not run now has the result of its last run")


def with_result(case, kept):
    """What the document says of it is kept beside what is printed."""
    check = case.check
    kept[case.name] = {"date": str(datetime.datetime.now(datetime.timezone.utc).date()), "skip": case.skip}

    def checked(output):
        reason = check(output)
        if reason is None:
            kept[case.name]["moved"] = moved(output)
        return reason
    case.check = checked
    return case


def main():
    options = parse(__doc__, add_options)
    home = Path("HOME") if options.list else ordinary_user.copy(
        {**{name: options.build / name for name in NICS if (options.build / name).exists()}, "pair.py": PAIR,
         **{name: HERE / name for name in PARTS_OF_ROWS}})
    maker = Maker(options, home)
    of_case = {}
    for row, network in cells(ROWS):
        case = maker.case(row, network)
        of_case[case.name] = (row, case)
    chosen = select([case for _, case in of_case.values()], options)
    if options.list:
        print("\n".join(case.name for case in chosen))
        return 0
    require_programs(options.build, NICS)
    packages = Packages(sorted({p for case in chosen for p in of_case[case.name][0].packages}),
                        not options.no_install)
    compile_own(home)
    ordinary_user.give_away(home)
    # Of each cell what became of it when it was last run, so that the document can be made of several runs.
    kept_in = options.build / "programs.json"
    kept = json.loads(kept_in.read_text(encoding="utf-8")) if kept_in.exists() else {}
    for case in chosen:
        case.skip = ordinary_user.reason_against() or packages.reason_against(of_case[case.name][0])
        with_result(case, kept)
    status = run_cases(chosen, options.jobs)
    kept_in.write_text(json.dumps(kept), encoding="utf-8")
    if options.write_docs:
        document.write(REPOSITORY / "docs" / "programs.md", kept, packages.version)
    return status


if __name__ == "__main__":
    sys.exit(main())
