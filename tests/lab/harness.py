# SPDX-License-Identifier: BSD-3-Clause
"""What the test runners share: cases, time limits, one line of output per case."""

import argparse
import concurrent.futures
import dataclasses
import errno
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable, Optional

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
PAIR = HERE / "pair.py"
sys.path.insert(0, str(REPOSITORY / "tests" / "tools"))
import huge_pages  # noqa: E402
import outputs  # noqa: E402
import thirds  # noqa: E402
TAIL_LINES = 40
NOT_GRANTED = re.compile(r"^huge pages: .* are wanted, \d+ granted$", re.MULTILINE)
# The limits of cases are what an idle machine needs at most. They are there for what hangs, and a
# busy machine takes several times as long.
BUSY_FACTOR = 3
# Below what the kernel hands out to connections by itself.
PORTS = range(10000, 32000)

# Words by which the stock programs report trouble, whatever their exit status.
TROUBLE = re.compile(
    r"Completion with error|completion with error|(?<!0 )[Ff]ailed|[Cc]ouldn't|[Uu]nable to|Problems|"
    r"is none of this lab's|Failure|Segmentation|AddressSanitizer|runtime error|terminate called|Assertion|wrong byte")


@dataclasses.dataclass
class Case:
    name: str
    command: list
    limit_s: int = 60
    quick: bool = False
    # Given the whole output: None, or why it is not what a good run prints.
    check: Callable[[str], Optional[str]] = lambda output: None
    environment: dict = dataclasses.field(default_factory=dict)
    # Too long for CI, which runs something like it anyway.
    slow: bool = False
    # Why the case can't run here.
    skip: Optional[str] = None


# What a lab says of failures by itself (docs/errors.md): programs that fail on purpose are told, too, and those that do
# not print trouble of their own.
EXPLAINED = re.compile(r"hostnic\[\d+\] (?:QP 0x\w+|a completion queue of \d+ entries|ibv_\w+): .*")


def no_trouble(output):
    found = TROUBLE.search(EXPLAINED.sub("", output))
    return f"the output says '{found.group(0)}'" if found else None


def verify_is_ok(output):
    if "hostnic-verify: ok:" not in output:
        return "hostnic-verify printed no summary"
    return no_trouble(output)


def error_checks_are_ok(output):
    if not re.search(r"hostnic-verify: [1-9]\d* error checks passed, 0 failed", output):
        return "hostnic-verify printed no summary of its error checks, or some failed"
    return no_trouble(output)


def perftest_rows(rows):
    """A check: the client's table has that many lines of results, which it prints when all
    iterations are done."""

    def check(output):
        # Only what the client says on stdout: perftest's warnings would be glued to its table.
        client = output.split("--- client\n", 1)[-1].split("\n--- ", 1)[0]
        results = outputs.perftest_rows(client)
        if len(results) != rows:
            return f"{len(results)} lines of results, expected {rows}"
        for result in results:
            # Bandwidths and message rate, or latencies. On a busy machine perftest can take the
            # CPU's frequency for so large that all are 0.00, or for 0; deviations are no numbers then.
            if any(value < 0 for value in result[3:]):
                return f"a result that is negative: {result}"
        return no_trouble(output)

    return check


def pingpong_is_ok(output):
    if output.count(" iters in ") != 2:
        return "not both sides of the pingpong printed their result"
    if "invalid data" in output:
        return "the pingpong found invalid data"
    return no_trouble(output)


class Ports:
    """Numbers of TCP ports that nobody listens on, each once. Where another run begins at the same
    time it begins elsewhere."""

    def __init__(self):
        self.last = PORTS.start + os.getpid() * 331 % (len(PORTS) - 1)

    def next(self):
        for _ in PORTS:
            self.last = self.last + 1 if self.last + 1 < PORTS.stop else PORTS.start
            if is_free(self.last):
                return self.last
        raise RuntimeError("no TCP port is free")


def is_free(port):
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                # As servers do: connections that have ended are in nobody's way.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("", port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
    return True


def udp_nics(lab=0):
    """Options for two NICs over UDP sockets, at addresses of the loopback interface that other labs
    of this process don't take, and those of others hardly."""
    place = f"127.{78 + os.getpid() % 100}.{os.getpid() // 100 % 254}"
    return [word for nic in (1, 2) for word in ("--nic", f"port=udp,ip={place}.{2 * lab + nic}")]


def pair(port, server, client):
    return [sys.executable, str(PAIR), "--port", str(port), *map(str, server), "----",
            *map(str, client)]


def stop_group(process):
    """Ends the case's process group, gently first. A group of ours: the case is its leader."""
    for which, patience in ((signal.SIGTERM, 3), (signal.SIGKILL, 3)):
        try:
            os.killpg(process.pid, which)
        except ProcessLookupError:
            return
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
    # The leader may have ended before others of its group.
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def contents(file):
    file.seek(0)
    return file.read().decode(errors="replace")


running = set()  # the processes of cases, to be stopped when the run is


def run_case(case):
    """(None or the reason of the failure, output, seconds)."""
    start = time.monotonic()
    limit_s = case.limit_s * BUSY_FACTOR
    # Apart, so that no warning is glued to a result.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            [str(word) for word in case.command], stdin=subprocess.DEVNULL, stdout=out,
            stderr=err, env={**os.environ, **case.environment}, start_new_session=True)
        running.add(process)
        reason = None
        try:
            status = process.wait(limit_s)
            if status != 0:
                reason = f"exit status {status}"
        except subprocess.TimeoutExpired:
            reason = f"not done after {limit_s} s"
        finally:
            stop_group(process)
            running.discard(process)
        output = contents(out)
        noise = contents(err)
    if noise.strip():
        output = f"{output.rstrip()}\n--- stderr\n{noise}"
    return reason or case.check(output), output, time.monotonic() - start


def add_options(parser):
    parser.add_argument("--build", default=REPOSITORY / "build", type=Path,
                        help="build directory (default: %(default)s)")
    parser.add_argument("--apps", type=Path, metavar="DIR",
                        help="build directory of hostnic-verify and hostnic-stress, if another")
    parser.add_argument("--filter", default="", help="run the cases whose name matches this regex")
    parser.add_argument("--list", action="store_true", help="print the names and leave")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a representative part")
    size.add_argument("--ci", action="store_true",
                      help="everything but long cases that resemble others")
    size.add_argument("--ci-without-quick", dest="without_quick", action="store_true",
                      help="of --ci, what --quick has not")
    size.add_argument("--full", action="store_true", help="everything (default)")
    thirds.add_option(parser)
    parser.add_argument("--seed", type=int, default=1, help="for impairments and hostnic-verify")


def select(cases, options):
    try:
        pattern = re.compile(options.filter)
    except re.error as error:
        sys.exit(f"--filter: '{options.filter}' is no regular expression: {error}")
    few = options.ci or options.without_quick
    cases = [c for c in cases if c.quick or not (options.quick or few and c.slow)]
    of_third = {id(c) for c in thirds.dealt((c for c in cases if not c.quick), options.third)}
    return [c for c in cases if (id(c) in of_third or c.quick and not options.without_quick) and pattern.search(c.name)]


def remove_left_directories():
    """EAL's runtime directories of hostnicds that were killed, by us or with an earlier run."""
    root = os.geteuid() == 0
    parent = Path("/var/run" if root else os.environ.get("XDG_RUNTIME_DIR", "/tmp"))
    # hostnic-PID, and what run_hosts_tests.py names after itself: hostnic-test-PID-NUMBER.
    for path in (parent / "dpdk").glob("hostnic-*"):
        owner = re.fullmatch(r"hostnic-(\d+)|hostnic-test-(\d+)-\d", path.name)
        if owner is None:
            continue
        try:
            os.kill(int(owner.group(1) or owner.group(2)), 0)
        except ProcessLookupError:
            shutil.rmtree(path, ignore_errors=True)
        except PermissionError:
            pass  # it lives, and is somebody else's


def run_cases(cases, jobs=1):
    """Exit status for main()."""
    counts = {"ok": 0, "FAIL": 0, "skip": 0}
    pool = concurrent.futures.ThreadPoolExecutor(jobs)
    try:
        for future in concurrent.futures.as_completed([pool.submit(run_one, c) for c in cases]):
            outcome, text = future.result()
            counts[outcome] += 1
            print(text, flush=True)
    finally:
        # Interrupted: those that run are stopped, the rest is not begun.
        pool.shutdown(wait=False, cancel_futures=True)
        for process in list(running):
            stop_group(process)
        pool.shutdown()
        remove_left_directories()
    print(f"{counts['ok']} passed, {counts['FAIL']} failed"
          + (f", {counts['skip']} skipped" if counts["skip"] else ""))
    if not cases:
        print("no case matches", file=sys.stderr)
        return 1
    return 1 if counts["FAIL"] else 0


def run_one(case):
    """(ok, FAIL or skip; what to print)."""
    if case.skip is not None:
        return "skip", f"skip {case.name}: {case.skip}"
    reason, output, seconds = run_case(case)
    if reason is None:
        return "ok", f"ok   {case.name} ({seconds:.1f})"
    # Found out only when the command was to begin.
    if reason == f"exit status {huge_pages.NOT_GRANTED_STATUS}" and (line := NOT_GRANTED.search(output)):
        return "skip", f"skip {case.name}: {line[0]}"
    again = [f"{k}={v}" for k, v in case.environment.items()] + quoted(case.command)
    return "FAIL", "\n".join([
        f"FAIL {case.name} ({seconds:.1f}): {reason}",
        *(f"     | {line}" for line in outputs.tail(output, TAIL_LINES)),
        "     again: " + " ".join(again)])


def may_leak(command):
    """Leaks of hostnicd and hostnic are ours; verbs programs leave without freeing what they have."""
    sanitized = os.environ.get("ASAN_OPTIONS")
    return ["env", f"ASAN_OPTIONS={sanitized}:detect_leaks=0", *command] if sanitized else command


def quoted(command):
    return [shlex.quote(str(word)) for word in command]


def require_programs(build, names):
    """Leaves with one clear line if something of the build is missing."""
    for name in names:
        if not (build / name).exists():
            sys.exit(f"{build / name} is missing: build first (./run build), or give --build DIR")


def parse(description, extra=None):
    parser = argparse.ArgumentParser(description=description)
    add_options(parser)
    if extra is not None:
        extra(parser)
    options = parser.parse_args()
    options.build = options.build.resolve()
    options.apps = (getattr(options, "apps", None) or options.build).resolve()
    return options
