#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Programs that attack hostnicd, each beside two honest ones that verify every byte.

Each case has a hostnicd of its own. What counts: hostnicd lives and answers, the honest programs
finish while the attack goes on, and hostnicd has said what it refused. As root the attacks are
another user's programs; else they are ours, and what only another user is denied is left out."""

import argparse
import contextlib
import dataclasses
import os
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Callable, Optional

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / name) for name in ("lab", "tools")]
import huge_pages  # noqa: E402
import memory_group  # noqa: E402
from harness import remove_left_directories  # noqa: E402

REPOSITORY = Path(__file__).resolve().parents[2]
NOBODY, DAEMON_USER, STRANGER = 65534, 65533, 65532
# How many threads the requests of one user may take, with those that close what he sent.
MOST_THREADS = 24
# What an idle machine takes is a tenth of it.
START_S, ANSWER_S, HONEST_S, ATTACK_S, END_S = 60, 20, 100, 100, 30
# Of the crowd: how long its programs run before and while their bytes are counted, how often that
# may be, and the least that an honest one must have of a fair share.
CROWD_WARM_UP_S, CROWD_S, CROWD_INTERVALS, LEAST_SHARE = 1, 3, 3, 0.8
# How much one of the crowd registers and deregisters, in MiB, if there is three times as much, or else.
REGISTERED_MB, FEW_REGISTERED_MB = 2048, 256
# The longest that an lcore may be busy with one thing while others wait, in its own time, and that an honest program
# may wait for a WRITE of a word, but for what its threads and the lcores wait for a processor.
LONGEST_TURN_MS = LONGEST_WRITE_MS = 100
# What hostnicd may take from its start on, in MiB: packet buffers that it had not used before, and half of
# what an attack could have it make.
LITTLE_MB = 256
# What page tables may take: those of one user (limits.user_page_tables_mb), and hostnicd's own.
MOST_TABLES_MB = 96 + 16
HONEST = ["--rounds", "6", "--max-bytes", "1m", "--timeout-seconds", "30"]


# How the threads that serve NICs are called, up to DPDK 22.11 and from 23.03 on.
LCORES = ("rte-worker", "dpdk-worker")
# Of those that the cases name themselves.
RPING_PORT, METRICS_PORT = 7471, 19471
HOLES = "cut off memory that it had registered|its memory is gone"


@dataclasses.dataclass
class Case:
    name: str
    attack: str
    # What the attack must print, and hostnicd's log have.
    says: str = ""
    logged: str = ""
    seconds: int = 3
    config: str = ""
    needs_root: bool = False
    quick: bool = True
    # The attack goes on until the honest programs are done.
    holds: bool = False
    # The lcore sleeps until a call of the attacker's is over, who may be kept from a processor, and for
    # others of hostnicd's threads, who may be, too: that is nobody's doing here.
    sleeps: bool = False
    # hostnicd has been told to end.
    ends: bool = False
    # Who runs hostnicd, where root runs the tests: a limit of processes is none for root.
    user: Optional[int] = None
    # The command that runs hostnicd in a user namespace.
    namespace: tuple = ()
    # How many huge pages are reserved meanwhile.
    huge_pages: int = 0
    # How much memory hostnicd may take from its start on, in MiB; 0: as much as there is.
    memory_mb: int = 0
    # How many page tables hostnicd may have, in MiB; 0: any number.
    page_tables_mb: int = 0
    # A service manager wants signs of life.
    watched: bool = False
    # What else than an attack beside honest programs.
    runs: Optional[Callable] = None


# What is mapped counts, though no page of it be made.
MANY_TABLES = "limits = { user_page_tables_mb = 4096 }"
CASES = [
    Case("a queue pair's state that is none", "impossible-state", "^0 impossible states"),
    Case("commands with impossible words", "impossible-commands", "^0 of [1-9]"),
    Case("RTS without RTR", "never-connected", "was refused"),
    Case("2,048 regions of a byte", "many-pieces", "begins inside a page"),
    Case("memory that never comes", "memory-that-never-comes", "^[1-9].* wait", seconds=ATTACK_S,
         holds=True, needs_root=True),
    Case("files that never close", "files-that-never-close", "^[1-9].* wait", seconds=ATTACK_S,
         holds=True, needs_root=True),
    Case("other files than are asked for", "opens-with-other-files", "^refused 4 of 4, and the right ones: error 0"),
    Case("late memory that is never filled, and lies about it", "late-memory",
         "^refused 5 of 5, unfilled 2 of 2, foreign 2 of 2, filled 3 of 3"),
    Case("holes in registered memory", "punches-registered-memory", "^dropped [1-9]", HOLES, needs_root=True,
         sleeps=True),
    Case("holes in the memory of programs that end", "punches-and-ends", "^[1-9].* ended, [1-9]",
         "no device for", needs_root=True, sleeps=True),
    Case("holes in the segment", "punches-segment", "^dropped [1-9]", f"{HOLES}|impossible", needs_root=True,
         sleeps=True),
    Case("holes in registered huge pages, which are taken", "punches-huge-registered-memory",
         "^dropped [1-9]", HOLES, needs_root=True, sleeps=True, huge_pages=300),
    Case("holes in a segment of huge pages, which are taken", "punches-segment",
         "^dropped [1-9].*, [1-9][0-9]* with rings in huge pages", f"{HOLES}|impossible", needs_root=True,
         sleeps=True, huge_pages=300),
    Case("holes in the arena", "punches-arena", "^dropped [1-9]", HOLES, needs_root=True, sleeps=True),
    # Of each client that is dropped 512 MiB are mapped until its memory is let go of.
    Case("slices that are called filled", "declares-filled", "^dropped [1-9].* 0 pages were made", HOLES,
         needs_root=True, config=MANY_TABLES),
    Case("slices that are called filled, and little memory for hostnicd", "declares-filled",
         "^dropped [1-9].* 0 pages were made", HOLES, needs_root=True, memory_mb=LITTLE_MB, config=MANY_TABLES),
    Case("holes, again and again, and little memory for hostnicd", "punches-registered-memory", "^dropped [1-9]",
         HOLES, needs_root=True, sleeps=True, memory_mb=LITTLE_MB),
    Case("all mappings, by nine devices", "takes-all-mappings", "^took 8192 mappings with 9 devices: .*this user",
         seconds=ATTACK_S, holds=True, needs_root=True),
    Case("devices that die with all that they may have", "dies-with-everything", "^[1-9].* devices died", seconds=10,
         needs_root=True),
    Case("memory of 16,384 regions that moves", "changes-memory-for-ever", "^moved [1-9]", needs_root=True),
    Case("8,000 threads that sleep where one is woken", "sleeps-in-crowds", "^[1-9].* threads slept, [1-9]",
         needs_root=True),
    Case("descriptors that linger", "descriptors-that-linger", "^[1-9].* linger", seconds=ATTACK_S, holds=True),
    Case("all queue pairs", "takes-all-queue-pairs", "^took 300 of 400", "has met a limit",
         config="limits = { max_qps = 400, user_qps = 300 }", needs_root=True),
    Case("all memory regions", "takes-all-regions", "^took 300 of 400 .*ENOMEM|Cannot allocate",
         "has met a limit", config="limits = { max_mrs = 400, user_mrs = 300 }", needs_root=True),
    Case("all devices", "takes-all-devices", "^opened 8 devices: user 65534 .*Cannot allocate",
         "has met a limit", config="limits = { max_clients = 16 }", needs_root=True),
    Case("pages that lie alone, and little memory for hostnicd", "scatters-pages",
         "^registered [0-9]+ pages.* too scattered", "has met a limit: the page tables", seconds=ATTACK_S, holds=True,
         needs_root=True, memory_mb=LITTLE_MB, page_tables_mb=MOST_TABLES_MB,
         config="limits = { user_page_tables_mb = 96 }"),
    Case("queues that lie alone", "scatters-queues", "^made [0-9]+ queue pairs.* Cannot allocate memory",
         "has met a limit: the page tables", seconds=ATTACK_S, holds=True, needs_root=True,
         page_tables_mb=MOST_TABLES_MB,
         config="limits = { user_page_tables_mb = 96 }"),
    Case("show qp without end", "asks-for-ever", "^asks for [1-9]"),
    Case("answers that nobody reads", "never-reads", "^asked [1-9][0-9]+ times", seconds=ATTACK_S, holds=True),
    Case("devices that come and go", "opens-for-ever", "^opens\nopened [1-9]", seconds=10, needs_root=True),
    Case("all windows, groups and named hosts", "takes-few-things",
         "^took 2048 of 4096 windows, 128 of 256 groups, [1-9][0-9]* hosts", "has met a limit", seconds=ATTACK_S,
         holds=True, needs_root=True),
    Case("commands that are the owner's", "commands-of-others",
         r"^stop: refused(.|\n)*^quit: refused(.|\n)*^show nic:\nhnic0", needs_root=True),
]


class Failed(Exception):
    pass


def as_user(user):
    return ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--"]


class Daemon:
    """A hostnicd with two NICs on the virtual wire, whose socket everybody may open."""

    def __init__(self, options, case):
        self.apps = options.apps
        # What check_turns() said before hostnicd was ended.
        self.turns = None
        # What steady() has seen before hostnicd was ended, in ms.
        self.longest_write_ms = None
        # How long somebody for whom an lcore may have slept has waited for a processor, in ms.
        self.waited_ms = 0
        self.directory = Path(tempfile.mkdtemp(prefix="hostnic-hostile-"))
        self.directory.chmod(0o711)
        self.socket = self.directory / "hostnicd.sock"
        self.log_path = self.directory / "log"
        self.signs = None
        self.watched = {}
        if case.watched:
            self.signs = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self.signs.bind(str(self.directory / "signs"))
            self.watched = {"NOTIFY_SOCKET": str(self.directory / "signs"), "WATCHDOG_USEC": "1000000"}
        config = self.directory / "config.toml"
        config.write_text(f"[hostnicd]\nsocket_mode = '0666'\n{case.config}\n" + "[[nic]]\n" * 2)
        command = [options.build / "hostnicd", "--config", config, "--socket", self.socket, "--no-prompt"]
        command = [*case.namespace, *command]
        if case.user is not None and os.geteuid() == 0:
            command = [*as_user(case.user), *command]
            for path in (self.directory, config):
                os.chown(path, case.user, case.user)
        self.command = [str(word) for word in command]
        self.process = self.start()

    def start(self):
        ready, told = os.pipe()
        with open(self.log_path, "ab") as log, open(ready, "rb") as ready_file:
            process = subprocess.Popen(
                [*self.command, "--ready-fd", str(told)], stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, pass_fds=[told], start_new_session=True,
                env={**os.environ, **self.watched, "XDG_RUNTIME_DIR": str(self.directory), "HOSTNIC_LAB": "1"})
            os.close(told)
            if ready_file.read(1) == b"":
                raise Failed("hostnicd did not start")
        return process

    def log(self):
        return self.log_path.read_text(errors="replace")

    def environment(self):
        return {**os.environ, "HOSTNIC_SOCKET": str(self.socket)}

    def ask(self, command):
        try:
            return subprocess.run([self.apps / "hostnic", "ctl", command], env=self.environment(),
                                  capture_output=True, text=True, timeout=ANSWER_S)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"hostnicd does not answer '{command}'") from error

    def check_alive(self):
        if (status := self.process.poll()) is not None:
            raise Failed(f"hostnicd ended with status {status}")
        answer = self.ask("show nic")
        if answer.returncode != 0 or "hnic1" not in answer.stdout:
            raise Failed(f"hostnicd's answer to 'show nic': {answer.stdout}{answer.stderr}")

    def check_turns(self):
        """Whether nobody has held an lcore for long; says for how long."""
        turns = [int(us) for us in re.findall(r" longest turn (\d+) us ", self.ask("show nic").stdout)]
        if not turns or max(turns) > (LONGEST_TURN_MS + self.waited_ms) * 1000:
            raise Failed(f"longest turns: {turns} us; others waited {self.waited_ms:.1f} ms for a processor")
        return f"longest turn {max(turns) / 1000:.1f} ms"

    def check_page_tables(self, most_mb):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        tables_mb = int(re.search(r"VmPTE:\s*(\d+) kB", status)[1]) / 1024
        print(f"     page tables of hostnicd's take {tables_mb:.0f} MiB", flush=True)
        if tables_mb > most_mb:
            raise Failed(f"page tables take {tables_mb:.0f} MiB")

    def stop(self):
        """Whether it ended by itself when it was asked to."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            status = self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return "hostnicd does not end"
        return None if status == 0 else f"hostnicd ended with status {status}"


@contextlib.contextmanager
def running(command, **more):
    process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               start_new_session=True, **more)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


class Waits:
    """Looks now and then how long threads of a process but its lcores have waited for a processor."""

    def __init__(self, pid):
        self.tasks = Path(f"/proc/{pid}/task")
        self.waited_ns = {}
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.look_on)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def look_on(self):
        while not self.over.wait(0.05):
            self.look()

    def look(self):
        # Threads end meanwhile, and the process may.
        with contextlib.suppress(OSError):
            for task in self.tasks.iterdir():
                with contextlib.suppress(OSError):
                    if not (task / "comm").read_text().startswith(LCORES):
                        self.waited_ns[task.name] = int((task / "schedstat").read_text().split()[1])

    def longest_ms(self):
        self.look()
        return max(self.waited_ns.values(), default=0) / 1e6


@contextlib.contextmanager
def steady(options, daemon):
    """An honest program that writes a word again and again; what it has seen is asked for while hostnicd lives."""
    process = subprocess.Popen(
        [str(word) for word in (options.apps / "hostnic", "run", "--", options.apps / "tests/hostile/hostnic-steady",
                                "--hostnicd", daemon.process.pid)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        env=daemon.environment())

    def longest_ms():
        output, _ = process.communicate(timeout=ANSWER_S)
        if process.returncode != 0 or not (found := re.search(r"the longest (-?\d+) us", output)):
            raise Failed(f"the program that writes again and again: status {process.returncode}: {output}")
        return int(found[1]) / 1000

    try:
        if (line := first_line(process)) != "steady\n":
            raise Failed(f"the program that writes again and again does not begin: {line}")
        yield longest_ms
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def output_of(process, limit_s, what, good=(0,)):
    try:
        output, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{what} is not done after {limit_s} s") from error
    if process.returncode not in good:
        raise Failed(f"{what}: status {process.returncode}: {output}")
    return output


def another_users(options, daemon, more):
    """An honest program of another user's, whose memory is reached through the mem fd."""
    return running([*as_user(NOBODY), options.apps / "hostnic", "run", "--",
                    options.apps / "tests/apps/hostnic-verify", "--both", "--device", "hnic0",
                    "--peer-device", "hnic1", *more],
                   env={**daemon.environment(), "HOSTNIC_MEMORY": "memfd", "HOME": str(daemon.directory)})


def first_line(process):
    if not select.select([process.stdout], [], [], ATTACK_S)[0]:
        raise Failed("the attack does not begin")
    # Byte by byte: what a buffer holds, communicate() does not find.
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(process.stdout.fileno(), 1)):
        line += byte
    return line.decode()


def honest(options, daemon, seed):
    return running([options.apps / "hostnic", "run", "--", options.apps / "tests/apps/hostnic-verify",
                    "--both", "--device", "hnic0", "--peer-device", "hnic1", "--seed", seed, *HONEST],
                   env=daemon.environment())


def attack(options, daemon, case):
    more = ["--uid", NOBODY] if os.geteuid() == 0 else []
    return running([options.apps / "tests/hostile/hostnic-hostile", case.attack, "--socket",
                    daemon.socket, "--seconds", case.seconds, "--directory", daemon.directory, *more])


def has_ended(process):
    """Whether all of it is gone but for threads that wait for a file of the attacker's, which nobody can kill."""
    if process.poll() is not None:
        return True
    return Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"


def end_beside(daemon, attacker):
    """hostnicd ends when it is asked to while the attack goes on, and another one takes its place."""
    daemon.turns = daemon.check_turns()
    if attacker.poll() is not None:
        raise Failed("the attack was over before hostnicd was asked to end")
    first = daemon.process
    first.terminate()
    end = time.monotonic() + 2 * END_S
    while not has_ended(first):
        if time.monotonic() > end:
            raise Failed("hostnicd does not end beside the attack")
        time.sleep(0.05)
    daemon.process = daemon.start()
    daemon.check_alive()
    attacker.terminate()
    if (status := first.wait(END_S)) != 0:
        raise Failed(f"beside the attack hostnicd ended with status {status}")


def run_case(options, case, daemon):
    with Waits(daemon.process.pid) as waits, steady(options, daemon) as longest_ms, \
            attack(options, daemon, case) as attacker:
        # The first line says that the attack has effect, and goes on for a while.
        said = first_line(attacker)
        with honest(options, daemon, 1) as first, honest(options, daemon, 2) as second:
            for process, name in ((first, "an honest program"), (second, "another honest program")):
                output = output_of(process, HONEST_S, name)
                if "hostnic-verify: ok:" not in output:
                    raise Failed(f"{name}: {output}")
        daemon.check_alive()
        if case.page_tables_mb:
            daemon.check_page_tables(case.page_tables_mb)
        if case.holds:
            daemon.longest_write_ms = longest_ms()
            end_beside(daemon, attacker)
        said += output_of(attacker, ATTACK_S, "the attack", [0, -signal.SIGTERM])
        if not case.holds:
            daemon.longest_write_ms = longest_ms()
    if not case.holds:
        daemon.check_alive()
    if said.startswith("skipped"):
        return said.strip()
    if not re.search(case.says, said, re.MULTILINE):
        raise Failed(f"the attack says: {said}")
    if case.sleeps:
        daemon.waited_ms = int(re.search(r"waited (\d+) us", said)[1]) / 1000 + waits.longest_ms()
    return None


def run_without_descriptors(options, _case, daemon):
    """hostnicd may open no further file: who asks hears so soon, and it goes on afterwards."""
    pid = daemon.process.pid
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = len(os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (used, limits[1]))
    for _ in range(3):
        answer = daemon.ask("show nic")
        if answer.returncode == 0 or "closed the connection" not in answer.stderr:
            raise Failed(f"the answer without descriptors: {answer.stdout}{answer.stderr}")
    resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    daemon.check_alive()
    if daemon.log().count("no descriptor is left") != 1:
        raise Failed("the log does not say it once")
    with honest(options, daemon, 1) as program:
        output_of(program, HONEST_S, "an honest program afterwards")


def run_stopped(options, _case, daemon):
    """An honest program's longest WRITE is found, beside attacks, too: here nobody attacks, and hostnicd stands."""
    with steady(options, daemon) as longest_ms:
        time.sleep(0.1)
        os.kill(daemon.process.pid, signal.SIGSTOP)
        time.sleep(3 * LONGEST_WRITE_MS / 1000)
        os.kill(daemon.process.pid, signal.SIGCONT)
        if (found := longest_ms()) < LONGEST_WRITE_MS:
            raise Failed(f"hostnicd stood for {3 * LONGEST_WRITE_MS} ms, and the longest WRITE took {found} ms")


def run(options, case):
    """("ok", "FAIL" or "skip", what to say)."""
    if case.needs_root and os.geteuid() != 0:
        return "skip", "only root has another user's programs"
    with contextlib.ExitStack() as stack:
        if case.huge_pages:
            if not huge_pages.may_reserve():
                return "skip", "only root reserves huge pages"
            try:
                stack.enter_context(huge_pages.reserved(case.huge_pages))
            except (huge_pages.NotGranted, OSError) as error:
                return "skip", str(error)
        group = None
        if case.memory_mb:
            try:
                group = stack.enter_context(memory_group.MemoryGroup())
            except memory_group.NotGranted as error:
                return "skip", str(error)
        return run_beside(options, case, group)


def run_beside(options, case, group=None):
    daemon = None
    try:
        daemon = Daemon(options, case)
        if group is not None:
            group.take(daemon.process.pid, case.memory_mb << 20)
        skipped = (case.runs or run_case)(options, case, daemon)
        if group is not None:
            print(f"     hostnicd took up to {group.most_mb()} MiB", flush=True)
            if group.kills() != 0:
                raise Failed("the control group's limit killed a process")
        turns = daemon.turns or (None if case.ends else daemon.check_turns())
        if daemon.longest_write_ms is not None:
            turns += f", an honest program's longest WRITE {daemon.longest_write_ms:.1f} ms"
            if daemon.longest_write_ms > LONGEST_WRITE_MS + daemon.waited_ms:
                raise Failed(f"{turns}; others waited {daemon.waited_ms:.1f} ms for a processor")
        if (trouble := daemon.stop()) is not None:
            raise Failed(trouble)
        if not re.search(case.logged, daemon.log()):
            raise Failed(f"the log does not match {case.logged!r}")
        if re.search(r"Sanitizer|runtime error", daemon.log()):
            raise Failed("a sanitizer found something")
        return ("skip", skipped) if skipped else ("ok", turns)
    except Failed as failure:
        return "FAIL", f"{failure}\n{daemon.log() if daemon else ''}"
    finally:
        if daemon is not None:
            daemon.stop()
            shutil.rmtree(daemon.directory, ignore_errors=True)


def run_another_users(options, _case, daemon):
    with another_users(options, daemon, HONEST) as program, honest(options, daemon, 1) as other:
        for each in (program, other):
            if "hostnic-verify: ok:" not in (output := output_of(each, HONEST_S, "an honest program")):
                raise Failed(output)
    counters = daemon.ask("show counters").stdout
    if not re.search("bytes_copied_mem_fd [1-9]", counters):
        raise Failed(f"nothing went through the mem fd: {counters}")


def bytes_sent(daemon):
    """What each client has sent until now, by process."""
    lines = re.findall(r"^client .* pid (\d+) .* bytes-sent (\d+) ", daemon.ask("show client").stdout,
                       re.MULTILINE)
    return {int(pid): int(count) for pid, count in lines}


def check_shares(sent, kinds):
    """Whether of those that want as much as they can get nobody honest has less than he should of a
    fair share, and what to say."""
    wanting = [pid for pid, kind in kinds.items() if kind in ("shares-with-others", "floods", "never-looks")]
    fair = sum(sent.values()) / len(wanting)
    honest = sorted(sent[pid] / fair for pid in wanting if kinds[pid] == "shares-with-others")
    others = ", ".join(f"{kind} {sent[pid] / fair:.2f}" for pid, kind in kinds.items()
                       if kind != "shares-with-others")
    said = f"shares of a fair one, of {fair / 1e6:.0f} MB: honest {honest[0]:.2f} to {honest[-1]:.2f}; {others}"
    return fair >= 1e6 and honest[0] >= LEAST_SHARE, said


def registered_mb():
    available = re.search(r"MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text())
    return REGISTERED_MB if int(available[1]) >= 3 * REGISTERED_MB * 1024 else FEW_REGISTERED_MB


def check_registrations(options, processes):
    """Ends honest programs and says how long their registrations took; how long they may take is the
    machine's, not the product's, unless the caller knows."""
    for process in processes:
        process.terminate()
    output = "".join(output_of(process, END_S, "an honest program") for process in processes)
    for what in ("registering", "deregistering"):
        times = sorted(int(each) / 1000 for line in re.findall(f"^{what} took us:(.*)$", output, re.MULTILINE)
                       for each in line.split())
        if len(times) < len(processes):
            raise Failed(f"{what}: {len(times)} times by {len(processes)} programs")
        p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
        said = f"{what} 64 KiB, {len(times)} times: p50 {p50:.2f} ms, p99 {p99:.2f}, max {times[-1]:.2f}"
        print(f"     {said}")
        if options.p99_ms is not None and p99 > options.p99_ms:
            raise Failed(said)


def put_first(pid):
    """All threads of a process before those of others for the processor."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setscheduler(int(task.name), os.SCHED_RR, os.sched_param(1))


def run_crowd(options, _case, daemon):
    """Many clients of one NIC, of which five do as they please: the others get what is theirs."""
    if options.at_once:
        put_first(daemon.process.pid)
    attacks = ["floods", "never-looks", "posts-garbage", "registers-for-ever"]
    honest_ones = ["shares-with-others"] * (options.clients - len(attacks) - 1)
    with contextlib.ExitStack() as stack:
        kinds, honest_processes = {}, []
        for name in [*attacks, *honest_ones, "is-stopped"]:
            program = "shares-with-others" if name == "is-stopped" else name
            process = stack.enter_context(running(
                [options.apps / "tests/hostile/hostnic-hostile", program, "--socket", daemon.socket,
                 "--seconds", ATTACK_S, "--megabytes", options.megabytes or registered_mb(),
                 "--registers-at-once", int(options.at_once)]))
            if (line := first_line(process)).startswith("hostnic-hostile:") or line == "":
                raise Failed(f"{name} does not begin: {line}")
            kinds[process.pid] = name
            if name == "shares-with-others":
                honest_processes.append(process)
            if name == "is-stopped":
                os.kill(process.pid, signal.SIGSTOP)
        time.sleep(CROWD_WARM_UP_S)
        # A program that gets no processor for long sends nothing, which is nobody's fault here.
        for _ in range(CROWD_INTERVALS):
            before = bytes_sent(daemon)
            time.sleep(CROWD_S)
            after = bytes_sent(daemon)
            if gone := kinds.keys() - after.keys() | kinds.keys() - before.keys():
                raise Failed(f"gone: {[kinds[pid] for pid in gone]}")
            good, said = check_shares({pid: after[pid] - before[pid] for pid in kinds}, kinds)
            if good or options.at_once:
                break
        check_registrations(options, honest_processes)
        daemon.check_alive()
    # Of programs that wait for those that are put first nobody knows what they would have sent.
    if not good and not options.at_once:
        raise Failed(said)
    print(f"     {said}")


def run_watched(options, case, daemon):
    """A service manager, who kills a hostnicd that says nothing, goes on hearing of it."""
    with attack(options, daemon, case) as attacker:
        if not re.match(case.says, said := first_line(attacker)):
            raise Failed(f"the attack says: {said}")
        daemon.signs.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while daemon.signs.recv(100):
                pass  # said before
        daemon.signs.settimeout(HONEST_S)
        try:
            for _ in range(3):
                while daemon.signs.recv(100) != b"WATCHDOG=1":
                    pass
        except TimeoutError as error:
            raise Failed(f"hostnicd gives no sign of life in {HONEST_S} s") from error
        if attacker.poll() is not None:
            raise Failed("the attack was over before")
        end_beside(daemon, attacker)


def threads_of(daemon):
    return len(os.listdir(f"/proc/{daemon.process.pid}/task"))


def run_requests_that_wait(options, case, daemon):
    """However many requests of one user wait for their descriptors, few threads do, the user's other requests are
    refused in time, and nobody else's wait."""
    before = threads_of(daemon)
    with attack(options, daemon, case) as attacker:
        if (said := first_line(attacker)).startswith("skipped"):
            return said.strip()
        if (count := threads_of(daemon) - before) > MOST_THREADS:
            raise Failed(f"{count} threads more than before: {said}")
        with honest(options, daemon, 1) as program:
            output_of(program, HONEST_S, "an honest program")
        with another_users(options, daemon, HONEST) as program:
            output = program.communicate(timeout=HONEST_S)[0]
            if program.returncode == 0 or "as may open devices at a time do so" not in output:
                raise Failed(f"another program of the user's: {output}")
        daemon.check_alive()
        end_beside(daemon, attacker)
    return None


def run_connections_that_wait(options, case, daemon):
    """Connections of one user that ask for nothing push out nobody else's."""
    with attack(options, daemon, case) as attacker:
        first_line(attacker)
        failed = [answer for answer in (daemon.ask("show nic") for _ in range(25)) if answer.returncode != 0]
        if failed:
            raise Failed(f"{len(failed)} of 25 commands failed: {failed[0].stderr}")
        with honest(options, daemon, 1) as program:
            output_of(program, HONEST_S, "an honest program")
        end_beside(daemon, attacker)
    return None


def run_without_threads(options, _case, daemon):
    """hostnicd's user has a limit of threads."""
    # As its user: to change another user's takes a capability that not every root has.
    def limit(soft):
        subprocess.run([str(word) for word in [*(as_user(DAEMON_USER) if os.geteuid() == 0 else []), "prlimit", "--pid",
                                               daemon.process.pid, f"--nproc={soft}:"]], check=True)
    check_without_threads(options, daemon, lambda: limit(1), lambda: limit(4096))


def run_in_full_group(options, _case, daemon):
    """hostnicd's control group has a limit, as containers and services have, which counts for root as well."""
    try:
        with memory_group.ThreadGroup() as group:
            group.take(daemon.process.pid)
            check_without_threads(options, daemon, group.forbid, group.permit)
            if (trouble := daemon.stop()) is not None:
                raise Failed(trouble)
    except memory_group.NotGranted as error:
        return str(error)
    return None


def check_without_threads(options, daemon, forbid, permit):
    """hostnicd may start no further thread: who opens a device hears so, and it goes on afterwards."""
    forbid()
    for _ in range(3):
        with honest(options, daemon, 1) as program:
            output = program.communicate(timeout=HONEST_S)[0]
        if program.returncode == 0 or "can start no further thread" not in output:
            raise Failed(f"a program without a thread for it: {output}")
    daemon.check_alive()
    permit()
    with honest(options, daemon, 1) as program:
        output_of(program, HONEST_S, "an honest program afterwards")


def table_of_commands():
    """The rows of SECURITY.md's table that are commands: (command, for others)."""
    rows = re.findall(r"^\| `([^`]+)` \| (?:yes|all) \| (yes|own|no) \|$",
                      (REPOSITORY / "SECURITY.md").read_text(), re.MULTILINE)
    if ("quit", "no") not in rows:
        raise Failed("SECURITY.md has no table of commands")
    return rows


def ask_as(options, daemon, user, command):
    return subprocess.run([str(word) for word in [*as_user(user), options.apps / "hostnic", "ctl", command]],
                          env={**daemon.environment(), "HOME": str(daemon.directory)}, capture_output=True,
                          text=True, timeout=ANSWER_S)


def was_allowed(answer):
    """Whether the asker may give the command, which may have been for another kind of NIC."""
    return answer.returncode == 0 or "does not speak MRC" in answer.stderr


def check_captures(options, daemon):
    """Packets are for the owner alone."""
    for user, status, words in ((0, 0, " packets, "), (NOBODY, 1, "for the user who runs hostnicd")):
        done = subprocess.run([str(word) for word in [*as_user(user), options.apps / "hostnic", "capture", "--seconds", "500ms"]],
                              env={**daemon.environment(), "HOME": str(daemon.directory)}, capture_output=True,
                              text=True, timeout=ANSWER_S)
        if done.returncode != status or words not in done.stderr:
            raise Failed(f"`hostnic capture` by user {user}: status {done.returncode}: {done.stderr}")
        if user != 0 and done.stdout:
            raise Failed(f"`hostnic capture` by user {user} shows packets")


def of_user(user):
    return as_user(user) if user != 0 else []


@contextlib.contextmanager
def belongings(options, daemon, user):
    """What a user's programs have, and had: the process that has queue pairs, the one whose queue pairs went with it,
    and the one that listens by rdma_cm."""
    environment = {**daemon.environment(), "HOME": str(daemon.directory)}
    hostile = [options.apps / "tests/hostile/hostnic-hostile", "shares-with-others", "--socket", daemon.socket,
               *(["--uid", user] if user != 0 else [])]
    listens = [*of_user(user), options.apps / "hostnic", "run", "--", "rping", "-s", "-p", RPING_PORT + (user != 0)]
    with running([*hostile, "--seconds", ATTACK_S]) as holder, running(listens, env=environment) as listener:
        if not first_line(holder).startswith("writes"):
            raise Failed("a program of each user's does not begin")
        with running([*hostile, "--seconds", 1]) as gone:
            output_of(gone, HONEST_S, "a program that ends")
        end = time.monotonic() + ANSWER_S
        while f" pid {listener.pid} " not in (shown := daemon.ask("show cm").stdout):
            if time.monotonic() > end or listener.poll() is not None:
                raise Failed(f"a program that listens by rdma_cm is not there: {shown}")
            time.sleep(0.1)
        yield {"show client": f" pid {holder.pid} ", "show qp": "", "show cm": f" pid {listener.pid} ",
               "show dead": f"(pid {gone.pid})", "explain last": f"(pid {gone.pid})",
               "show metrics": f'pid="{holder.pid}"'}


def check_metrics_of_all(daemon, mine, others):
    """By HTTP everybody on the machine sees everybody's."""
    fetch = f"import urllib.request as r; print(r.urlopen('http://127.0.0.1:{METRICS_PORT}/metrics').read().decode())"
    done = subprocess.run([*map(str, as_user(STRANGER)), sys.executable, "-c", fetch], capture_output=True, text=True,
                          timeout=ANSWER_S, cwd="/")
    for each in (mine, others):
        if each["show metrics"] not in done.stdout:
            raise Failed(f"GET /metrics lacks {each['show metrics']}: {done.stdout[-500:]}{done.stderr[-500:]}")


def run_who_may_do_what(options, _case, daemon):
    """SECURITY.md's table of commands, row by row, and that it has all of them."""
    check_captures(options, daemon)
    rows = table_of_commands()
    known = re.findall(r"^((?:show|set|clear) \w+|\w+)", daemon.ask("help").stdout.split("SPEC:")[0], re.MULTILINE)
    # Commands of the prompt's own ask hostnicd for nothing, or for what the others do.
    known = [name for name in known if name not in ("watch", "rates", "fault", "exit")]
    missing = [name for name in known if not any(command.split()[:len(name.split())] == name.split()
                                                 for command, _ in rows)]
    if missing or len(known) < 10:
        raise Failed(f"commands that the table has not: {missing} of {known}")
    # Root's program is the last one that has ended.
    with belongings(options, daemon, NOBODY) as mine, belongings(options, daemon, 0) as others_have:
        check_metrics_of_all(daemon, mine, others_have)
        clients = {int(pid): number for number, pid in
                   re.findall(r"^client (\d+) .* pid (\d+) ", daemon.ask("show client").stdout, re.MULTILINE)}
        for each in (mine, others_have):
            each["show qp"] = f" client {clients[int(each['show client'].split()[1])]} "
        for command in mine:
            if others_have[command] not in (shown := daemon.ask(command).stdout):
                raise Failed(f"'{command}' of root's lacks {others_have[command]}: {shown}")
        if not {command for command, others in rows if others == "own"} <= mine.keys():
            raise Failed("a command shows others their own, and nobody has any here")
        for command, others in rows:
            answer = ask_as(options, daemon, NOBODY, command)
            said = f"'{command}' of another user's: {answer.returncode} {answer.stdout}{answer.stderr}"
            if was_allowed(answer) != (others != "no"):
                raise Failed(said)
            if others == "no" and "is for the user who runs hostnicd" not in answer.stderr:
                raise Failed(said)
            if others == "own" and (others_have[command] in answer.stdout or mine[command] not in answer.stdout):
                raise Failed(f"{said}: {mine[command]} and not {others_have[command]} was to be there")
    for command, _ in rows:
        if not was_allowed(answer := ask_as(options, daemon, 0, command)):
            raise Failed(f"'{command}' of root's: {answer.stdout}{answer.stderr}")
    daemon.process.wait(END_S)


def run_strangers_commands(options, case, daemon):
    """In a user namespace strangers have the number of nobody, whoever runs hostnicd there."""
    for command in ("quit", "set impair all rx none", "clear counters"):
        answer = ask_as(options, daemon, STRANGER, command)
        if answer.returncode == 0 or "is for the user who runs hostnicd" not in answer.stderr:
            raise Failed(f"'{command}' of a stranger's: {answer.returncode} {answer.stdout}{answer.stderr}")
    holder = [*as_user(case.user), options.apps / "hostnic", "run", "--", "ibv_asyncwatch", "-d", "hnic0"]
    with running(holder, env={**daemon.environment(), "HOME": str(daemon.directory)}) as process:
        first_line(process)
        for command in ("show client", "show qp"):
            answer = ask_as(options, daemon, STRANGER, command)
            if answer.returncode != 0 or f" pid {process.pid} " in answer.stdout:
                raise Failed(f"'{command}' of a stranger's shows others: {answer.stdout}{answer.stderr}")
    if daemon.process.poll() is not None:
        raise Failed("hostnicd is gone")


for _name, _user, _namespace in (("nobody's", NOBODY, ("unshare", "-U", f"--map-user={NOBODY}")),
                                 ("its root's", DAEMON_USER, ("unshare", "-Ur"))):
    CASES.append(Case(f"commands of strangers, in a user namespace of {_name}", "", user=_user,
                      namespace=_namespace, needs_root=True, runs=run_strangers_commands))
CASES.append(Case("who may do what", "", needs_root=True, ends=True, runs=run_who_may_do_what,
                  config=f"metrics_port = {METRICS_PORT}"))
CASES.append(Case("signs of life beside descriptors that linger", "descriptors-that-linger", seconds=ATTACK_S,
                  runs=run_watched, watched=True))
CASES.append(Case("400 requests that wait", "requests-that-wait", seconds=ATTACK_S, needs_root=True,
                  runs=run_requests_that_wait))
CASES.append(Case("1,000 connections that ask for nothing", "connections-that-wait", seconds=ATTACK_S,
                  needs_root=True, runs=run_connections_that_wait))
CASES.append(Case("no thread left", "", user=DAEMON_USER, runs=run_without_threads))
CASES.append(Case("no thread left in the control group", "", needs_root=True, ends=True, runs=run_in_full_group))
CASES.append(Case("a crowd, and five of it greedy", "", runs=run_crowd))
CASES.append(Case("another user's memory", "", needs_root=True, runs=run_another_users))
CASES.append(Case("no descriptor left", "", runs=run_without_descriptors))
CASES.append(Case("hostnicd is stopped for a moment", "", runs=run_stopped))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=REPOSITORY / "build", type=Path)
    parser.add_argument("--apps", type=Path, metavar="DIR",
                        help="build directory of all but hostnicd, if another")
    parser.add_argument("--clients", type=int, default=24, metavar="N",
                        help="how many programs the crowd is (%(default)s)")
    parser.add_argument("--megabytes", type=int, metavar="N",
                        help=f"how much one of them registers ({REGISTERED_MB}, or {FEW_REGISTERED_MB} where "
                        "there is not enough memory)")
    parser.add_argument("--p99-ms", type=float, metavar="MS",
                        help="fail if the 99th percentile of the others' registrations is longer")
    parser.add_argument("--at-once", action="store_true",
                        help="put hostnicd and the crowd's threads that register before all others for the "
                        "processor (SCHED_RR, as root): what is left is not the scheduler's")
    parser.add_argument("--filter", default="", help="run the cases whose name matches this regex")
    parser.add_argument("--list", action="store_true", help="print the names and leave")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="without the long ones")
    size.add_argument("--ci", action="store_true", help="everything")
    size.add_argument("--full", action="store_true", help="everything (default)")
    options = parser.parse_args()
    options.apps = options.apps or options.build
    cases = [case for case in CASES if re.search(options.filter, case.name) and
             (case.quick or not options.quick)]
    if options.list:
        print("\n".join(case.name for case in cases))
        return 0
    counts = {"ok": 0, "FAIL": 0, "skip": 0}
    for case in cases:
        start = time.monotonic()
        outcome, why = run(options, case)
        counts[outcome] += 1
        print(f"{outcome:4} {case.name} ({time.monotonic() - start:.1f} s)" +
              (f"\n     {why}" if why else ""), flush=True)
    remove_left_directories()
    print(f"{counts['ok']} passed, {counts['FAIL']} failed" +
          (f", {counts['skip']} skipped" if counts["skip"] else ""))
    return 1 if counts["FAIL"] or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
