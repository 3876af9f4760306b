# SPDX-License-Identifier: BSD-3-Clause
"""`./run soak --deaths`: programs and their hostnicd are killed, or stopped for a while, at random
moments, while hostnic-verify and hostnic-stress move data and look at every byte. What it cost whom is
looked at as well: a program that nothing was done to, nor to its hostnicd, must end well; one to which
something was done may end with an error, but must not find a wrong byte, nor hang; and a hostnicd whose
programs are gone must be what it was before they came."""

import contextlib
import dataclasses
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from harness import Ports, remove_left_directories, udp_nics  # noqa: E402

# A program of verbs is told at once that its hostnicd is gone; what it does then is its own business.
END_S, START_S, ANSWER_S = 120, 60, 60
STOPPED_S = 20  # at most
# What nothing excuses.
INEXCUSABLE = re.compile(r"wrong byte|expected .* found|Sanitizer|runtime error|terminate called|Assertion|"
                         r"no progress for|hung|ended by signal (6|7|8|11)")
# Heaps and stacks that are kept for the next program.
MORE_RSS_KB, MORE_MAPS = 32 * 1024, 24
# One death in so many is hostnicd's, so many times a process is stopped and continued instead; one
# look for leaks comes after so many of all.
DAEMON_ONE_IN, STOPS_ONE_IN, LOOK_ONE_IN = 6, 6, 40
NETWORKS = {"virtual wire": ["--nics", "2"], "virtual wire, loss": ["--nics", "2", "--loss", "1%"], "udp": udp_nics()}


@dataclasses.dataclass
class Counts:
    programs_killed: int = 0
    daemons_killed: int = 0
    programs_stopped: int = 0
    daemons_stopped: int = 0
    ended_well: int = 0
    ended_by_error: int = 0
    looks: int = 0
    worst: dict = dataclasses.field(default_factory=dict)

    def deaths(self):
        return self.programs_killed + self.daemons_killed + self.programs_stopped + self.daemons_stopped


def is_listened_on(port):
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return any(fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port for fields in lines)


class Program:
    """One or two processes that exchange data."""

    def __init__(self, name, commands, environment, directory, port=None):
        self.name, self.port = name, port
        self.touched = False  # whether something was done to it, or to its hostnicd
        self.log = directory / f"program-{time.monotonic_ns()}"
        with open(self.log, "wb") as log:
            self.processes = [subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log,
                                               stderr=log, env=environment, start_new_session=True) for command in commands]

    def ended(self):
        return all(process.poll() is not None for process in self.processes)

    def end_if_alone(self):
        """The first of two waits for the second to call, for ever: also when that has been killed before."""
        if self.port is not None and self.processes[0].poll() is None and self.processes[1].poll() is not None and \
                self.touched and is_listened_on(self.port):
            self.signal(signal.SIGKILL, 0)

    def signal(self, number, index=None):
        for process in self.processes if index is None else [self.processes[index]]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)

    def output(self):
        return self.log.read_text(errors="replace")

    def finish(self):
        """What is wrong with how it ended, or None."""
        self.signal(signal.SIGKILL)  # what is left of its groups
        statuses = [process.wait() for process in self.processes]
        output = self.output()
        self.log.unlink()
        if found := INEXCUSABLE.search(output):
            return f"{self.name}: '{found.group(0)}':\n{output[-3000:]}"
        if any(statuses) and not self.touched:
            return f"{self.name}: status {statuses} although nothing was done to it:\n{output[-3000:]}"
        return None


class Daemon:
    def __init__(self, build, directory, network):
        self.build, self.directory = build, directory
        self.socket = directory / "hostnicd.sock"
        self.log = directory / "hostnicd.log"
        ready, told = os.pipe()
        with open(self.log, "wb") as log, open(ready, "rb") as ready_file:
            self.process = subprocess.Popen(
                [str(word) for word in [build / "hostnicd", "--", *NETWORKS[network], "--socket", self.socket, "--no-prompt",
                                        "--ready-fd", told]],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[told], start_new_session=True,
                env={**os.environ, "XDG_RUNTIME_DIR": str(directory)})
            os.close(told)
            if ready_file.read(1) == b"":
                raise RuntimeError(f"hostnicd did not start: {self.log.read_text()}")

    def ask(self, command):
        return subprocess.run([self.build / "hostnic", "ctl", "--socket", self.socket, command], capture_output=True,
                              text=True, check=True, timeout=ANSWER_S).stdout

    def has_nothing(self):
        return (self.ask("show client") == "no clients\n" and self.ask("show cm") == "no rdma_cm ids\n" and
                len(re.findall(r" clients 0 qps 0 ", self.ask("show nic"))) == 2)

    def measure(self):
        proc = Path(f"/proc/{self.process.pid}")
        maps = (proc / "maps").read_text().splitlines()
        status = (proc / "status").read_text()
        return {"descriptors": len(list((proc / "fd").iterdir())),
                "shared maps": sum("memfd:" in line or "/dev/shm" in line for line in maps), "maps": len(maps),
                "threads": int(re.search(r"Threads:\s+(\d+)", status).group(1)),
                "RSS in KB": int(re.search(r"VmRSS:\s+(\d+)", status).group(1)),
                # Who is killed has written nothing impossible.
                "clients dropped": sum(int(n) for n in re.findall(r"clients_dropped (\d+)", self.ask("show counters"))),
                "packet buffers": sum(int(n) for n in re.findall(r" buffers (\d+)/", self.ask("show nic")))}

    def kill(self):
        self.process.kill()
        self.process.wait()


class Deaths:
    def __init__(self, build, results, seed, slots):
        self.build, self.results = build, results
        self.choose = random.Random(seed)
        self.directory = Path(tempfile.mkdtemp(prefix="hostnic-deaths-"))
        self.ports = Ports()
        self.slots = [None] * slots
        self.counts = Counts()
        self.stopped = []  # (until, what says SIGCONT)
        self.daemon, self.base = None, None
        self.lives = 0

    def fail(self, why):
        self.results.fail("deaths", why)

    def start_daemon(self):
        network = list(NETWORKS)[self.lives % len(NETWORKS)]
        self.lives += 1
        self.daemon, self.base = Daemon(self.build, self.directory, network), None

    def start_program(self):
        seed, port = self.choose.randrange(1, 1 << 31), None
        run, apps = [self.build / "hostnic", "run", "--"], self.build / "tests/apps"
        verify = [*run, apps / "hostnic-verify", "--seed", seed, "--rounds", self.choose.choice([2, 8, 50]), "--max-bytes",
                  self.choose.choice(["4k", "64k", "1m"]), "--qps", self.choose.randint(1, 4), "--timeout-seconds", END_S,
                  "--memory", self.choose.choice(["malloc", "mmap", "memfd", "malloc,shm"])]
        kind = self.choose.randrange(5)
        if kind == 0:
            name, commands = "hostnic-stress", [[*run, apps / "hostnic-stress", "--seed", seed, "--seconds", 20, "--threads", 4,
                                                 "--qps", 32, "--contexts", 2, "--patience", END_S]]
        elif kind < 3:
            name, commands = "hostnic-verify", [[*verify, "--both", "--device", "hnic0", "--peer-device",
                                                 self.choose.choice(["hnic0", "hnic1"])]]
        else:
            port = self.ports.next()
            name, commands = "hostnic-verify, two processes", [
                [*verify, "--device", "hnic0", "--listen", port], [*verify, "--device", "hnic1", "--connect", f"127.0.0.1:{port}"]]
        return Program(name, commands, {**os.environ, "HOSTNIC_SOCKET": str(self.daemon.socket)}, self.directory, port)

    def reap(self, start_others=True):
        for i, program in enumerate(self.slots):
            if program is not None:
                program.end_if_alone()
            if program is not None and program.ended():
                self.note_end(program)
                self.slots[i] = program = None
            if program is None and start_others:
                self.slots[i] = self.start_program()

    def note_end(self, program):
        good = all(process.returncode == 0 for process in program.processes)
        if (why := program.finish()) is not None:
            self.fail(why)
        elif good:
            self.counts.ended_well += 1
        else:
            self.counts.ended_by_error += 1

    def go_on(self, all_of_them=False):
        now = time.monotonic()
        for until, what in [entry for entry in self.stopped if all_of_them or entry[0] <= now]:
            what(signal.SIGCONT)
            self.stopped.remove((until, what))

    def end_programs(self, by):
        """All of them, by a signal, or by themselves where there is none."""
        if by is not None:
            for program in filter(None, self.slots):
                program.touched = True
                program.signal(by)
        end = time.monotonic() + END_S
        while any(program is not None for program in self.slots) and time.monotonic() < end:
            self.reap(start_others=False)
            time.sleep(0.02)
        for i, program in enumerate(self.slots):
            if program is not None:
                self.fail(f"{program.name} does not end although its hostnicd has: {program.output()[-3000:]}")
                program.touched = True
                program.finish()
                self.slots[i] = None

    def look_for_leaks(self):
        self.go_on(all_of_them=True)
        self.end_programs(signal.SIGKILL)
        end = time.monotonic() + END_S
        while not self.daemon.has_nothing():
            if time.monotonic() > end:
                return self.fail(f"hostnicd keeps something: {self.daemon.ask('show client')}{self.daemon.ask('show nic')}")
            time.sleep(0.05)
        more = lambda now: {name: now[name] - self.base[name] for name in now}
        allowed = {"RSS in KB": MORE_RSS_KB, "maps": MORE_MAPS}
        self.counts.looks += 1
        while True:  # what packets referred to goes a moment later
            now = self.daemon.measure()
            self.base = self.base or {**now, "clients dropped": 0}
            too_much = [f"{count} more {name}" for name, count in more(now).items() if count > allowed.get(name, 0)]
            if not too_much or time.monotonic() > end:
                break
            time.sleep(0.2)
        for name, count in more(now).items():
            self.counts.worst[name] = max(count, self.counts.worst.get(name, 0))
        if too_much:
            self.fail(f"hostnicd has {', '.join(too_much)} than at first: {self.base}, {now}")

    def step(self):
        alive = [program for program in self.slots if program is not None and not program.ended()]
        stop, daemon = (self.choose.randrange(n) == 0 for n in (STOPS_ONE_IN, DAEMON_ONE_IN))
        until = time.monotonic() + self.choose.choice([0.1, 1, 3, STOPPED_S]) * self.choose.random()
        if daemon and stop:
            self.counts.daemons_stopped += 1
            for program in alive:
                program.touched = True
            process = self.daemon.process
            process.send_signal(signal.SIGSTOP)
            # Programs may be killed meanwhile.
            self.stopped.append((until, process.send_signal))
        elif daemon:
            self.counts.daemons_killed += 1
            for program in alive:
                program.touched = True
            self.go_on(all_of_them=True)
            self.daemon.kill()
            self.end_programs(None)
            self.start_daemon()
        elif alive:
            program = self.choose.choice(alive)
            program.touched = True
            index = self.choose.randrange(len(program.processes))
            if stop:
                self.counts.programs_stopped += 1
                program.signal(signal.SIGSTOP, index)
                self.stopped.append((until, lambda number: program.signal(number, index)))
            else:
                self.counts.programs_killed += 1
                program.signal(signal.SIGKILL, index)

    def run(self, end, most):
        self.start_daemon()
        while time.monotonic() < end and self.counts.deaths() < most and len(self.results.failures) < 5:
            self.reap()
            pause = time.monotonic() + self.choose.uniform(0.05, 0.6)
            while time.monotonic() < pause:
                self.go_on()
                time.sleep(0.02)
            if self.daemon.process.poll() is not None:
                self.fail(f"hostnicd ended: {self.daemon.process.returncode}: {self.daemon.log.read_text()[-3000:]}")
                self.end_programs(signal.SIGKILL)
                self.start_daemon()
            elif self.choose.randrange(LOOK_ONE_IN if self.base else 8) == 0:
                self.look_for_leaks()
            else:
                self.step()
        if self.daemon.process.poll() is None:
            self.look_for_leaks()

    def close(self):
        for program in filter(None, self.slots):
            program.signal(signal.SIGKILL)
        if self.daemon is not None:
            self.daemon.kill()
        shutil.rmtree(self.directory, ignore_errors=True)
        remove_left_directories()


def soak_deaths(build, results, seed, end, most=1 << 30, slots=4):
    deaths = Deaths(build, results, seed, slots)
    try:
        deaths.run(end, most)
    finally:
        deaths.close()
    c = deaths.counts
    print(f"killed: {c.programs_killed} programs, {c.daemons_killed} hostnicds; stopped and continued: "
          f"{c.programs_stopped} programs, {c.daemons_stopped} hostnicds; programs that ended well: {c.ended_well}, by an "
          f"error: {c.ended_by_error}; looked for leaks {c.looks} times, at most more than at first: {c.worst}")
    results.passed += 1 if not results.failures else 0
