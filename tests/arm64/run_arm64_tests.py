#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""hostnic for arm64, on this machine: the simulation by user emulation, all else (unit tests, stock programs in labs)
in an emulated machine with Debian's kernel for arm64, whose files are those of tree.py and this repository, read-only.
No KVM is needed, and none used. What weakly ordered processors do to shared memory no emulator on x86 shows:
tests/unit/hostif/memory_order_test.cc does."""

import argparse
import json
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
sys.path[:0] = [str(HERE.parent / part) for part in ("support", "tools")]
from guest import BEGINS, ENDS, Guest  # noqa: E402
from results import GTEST_END, GTEST_START, Results, run_gtest  # noqa: E402
import tree  # noqa: E402

PARTS = ("sim", "unit", "lab")
LIMIT_S = {"sim": 3600, "guest": 7200, "case": 600, "unit": 3600}
MEMORY_MIB = 3000
EMULATOR = ("qemu-aarch64-static", "-L")


def between(server, client, port, ends=("hostnic run --device hnic0 --", "hostnic run --device hnic1 --"), where=""):
    """For a shell: the client begins when the server listens, however long that takes there."""
    listens = f"{where} ss -Hltn | grep -q ':{port} '"
    return f"{ends[0]} {server} & until {listens}; do sleep 0.2; done; {ends[1]} {client} && wait $!"


def perftest(words, port):
    words = f"{words} -F -p {port}"
    return between(words, f"{words} 127.0.0.1", port)


def lab_cases():
    """(name, command for a shell)."""
    verify = "tests/apps/hostnic-verify"
    rows = ("ib_write_bw -s 65536 -n 200", "ib_read_bw -s 4096 -n 200", "ib_send_bw -s 3001 -n 200",
            "ib_atomic_bw -n 100", "ib_write_lat -n 200", "ib_send_bw -c UD -s 1024 -n 200")
    wires = (("virtual wire", ""), ("1 % loss", "--loss 1%"), ("udp", "--hosts 2"))
    cases = [("ibv_devinfo", "hostnic lab -- ibv_devinfo -v")]
    for wire, options in wires:
        for number, row in enumerate(rows):
            if options == "--hosts 2":
                body = between(f"{row} -F", f"{row} -F 10.77.0.1", 18515, ("hostnic on 1 --", "hostnic on 2 --"),
                               "hostnic on 1 --")
            else:
                body = perftest(row, 17000 + number)
            cases.append((f"{row} [{wire}]", f"hostnic lab {options} -- sh -c {shlex.quote(body)}"))
    words = f"$BUILD/{verify} --rounds 3 --max-bytes 64k --timeout-seconds 200"
    body = between(f"{words} --listen 17100", f"{words} --connect 127.0.0.1:17100", 17100)
    for wire, options in wires[:2]:
        cases.append((f"hostnic-verify [{wire}]", f"hostnic lab {options} -- sh -c {shlex.quote(body)}"))
    as_nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups"
    body = shlex.quote(perftest("ib_write_bw -s 65536 -n 100", 17200))
    cases.append(("ib_write_bw as an ordinary user",
                  f"{as_nobody} env XDG_RUNTIME_DIR=/tmp/nobody hostnic lab -- sh -c {body}"))
    by_path = 'env -u LD_PRELOAD LD_LIBRARY_PATH=$(hostnic libdir) ibv_devices'
    cases.append(("ibv_devices by path", f"hostnic lab -- sh -c {shlex.quote(by_path)} | grep hnic1"))
    return cases


def programs(build, suite):
    """(name, command) of the build's test programs."""
    listed = subprocess.run(["meson", "introspect", "--tests", str(build)], check=True, capture_output=True, text=True)
    for test in json.loads(listed.stdout):
        suites = {each.split(":")[-1] for each in test["suite"]}
        if suite in suites and not suites & {"integration", "bench", "tools"}:
            yield test["name"], test["cmd"]


def guest_script(build, options):
    lines = [f"echo {shlex.quote(BEGINS)}", f"cd {shlex.quote(str(REPOSITORY))}",
             f"export BUILD={shlex.quote(str(build))} HOME=/run TMPDIR=/tmp XDG_RUNTIME_DIR=/run/user TERM=dumb "
             "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
             "mkdir /tmp/nobody /run/bin; chown 65534:65534 /tmp/nobody; chmod 755 /run /run/bin",
             "for program in hostnic hostnicd; do ln -s $BUILD/$program /run/bin; done; PATH=$BUILD:$PATH",
             "ip link set lo up; ulimit -l unlimited",
             "one() { local name=$1 start=$SECONDS; shift; "
             f"timeout {LIMIT_S['case']} \"$@\" </dev/null >/tmp/said 2>&1; local status=$?; "
             'if ((status == 0)); then echo "ok   $name ($((SECONDS - start)))"; '
             'else echo "FAIL $name ($((SECONDS - start))): exit status $status"; '
             "tail -n 30 /tmp/said | sed 's/^/     | /'; fi; }",
             "gtest() { local name=$1; shift; "
             f'timeout {LIMIT_S["unit"]} "$@" --gtest_color=no </dev/null 2>&1; local status=$?; '
             '((status <= 1)) || echo "FAIL $name: exit status $status"; }']
    if "lab" in options.only:
        for name, command in lab_cases():
            if re.search(options.filter, name):
                lines.append(f"one {shlex.quote(name)} bash -c {shlex.quote(command)}")
    if "unit" in options.only:
        for name, command in programs(build, "unit"):
            if re.search(options.filter, name):
                lines.append(f"gtest {shlex.quote(name)} {shlex.join(command)}")
    return "\n".join(["#!/bin/bash", *lines, f"echo '{ENDS}0'", "sleep 60", ""])


class Machine(Guest):
    def __init__(self, build, options):
        super().__init__("arm64", LIMIT_S["guest"])
        self.build, self.options = build, options
        self.results, self.said = Results(), []

    def write_first(self):
        # Where the guest sees it: its own root has /tmp of its own.
        first = self.directory / "first"
        first.write_text(guest_script(self.build, self.options), encoding="utf-8")
        return first

    def command(self, first):
        words = (f"console=ttyAMA0 quiet loglevel=2 panic=-1 tree={tree.root()} repository={REPOSITORY} first={first}")
        return ["qemu-system-aarch64", "-machine", "virt", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2",
                "-m", str(MEMORY_MIB), "-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio",
                "-kernel", tree.image(), "-initrd", tree.first_tree(), "-append", words,
                "-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap",
                "-device", f"virtio-9p-pci,fsdev=root,mount_tag={tree.TAG}"]

    def heard(self, line):
        """GoogleTest's lines are counted, and shown where a test fails."""
        if told := re.match(r"(ok  |FAIL|skip) (.*)", line):
            if told.group(1) == "ok  ":
                self.results.passed += 1
            elif told.group(1) == "FAIL":
                self.results.failures.append((told.group(2), []))
            return False
        if line.startswith("     | "):
            return False
        if GTEST_START.search(line):
            self.said = []
        elif ended := GTEST_END.search(line):
            if ended.group(1) == "OK":
                self.results.passed += 1
            elif ended.group(1) == "SKIPPED":
                self.results.skipped += 1
                print(f"   skip {ended.group(2)}: {self.said[-1] if self.said else ''}", flush=True)
            else:
                self.results.fail(ended.group(2), "", self.said)
        self.said.append(line)
        return True


def run_simulation(build, results):
    for name, command in programs(build, "sim"):
        run_gtest(results, name, [*EMULATOR, tree.root(), *command], LIMIT_S["sim"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, default=REPOSITORY / "build-arm64", help="a build for arm64")
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--filter", default="", help="run what matches this regex: names of programs and of cases")
    options = parser.parse_args()
    options.only = options.only.split(",")
    if unknown := set(options.only) - set(PARTS):
        parser.error(f"--only: no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    build = options.build.resolve()
    if not (build / "hostnicd").exists():
        sys.exit(f"{build / 'hostnicd'} is missing: ./run arm64 builds it, or give --build DIR")
    for which in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(which, lambda number, _: sys.exit(128 + number))
    results = Results()
    if "sim" in options.only:
        run_simulation(build, results)
    if {"unit", "lab"} & set(options.only):
        machine = Machine(build, options)
        try:
            if machine.run() != 0:
                results.fail("the guest")
        finally:
            machine.end()
        results.add(machine.results)
    results.show_failures()
    print(results.summary())
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
