#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""memory_guests.py redis|postgres ROUNDS: the real program with a guest in it (memory_guest.c), which has memory
registered, written and read by a peer, while clients keep the program busy and it forks: redis saves in the background,
postgres forks for each connection. What the program has stored must be right, too."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPORT = Path("guest.txt")
START_S, END_S = 60, 1800
LEAST_FORKS = 3


def run(*words, check=True):
    done = subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=END_S)
    if check and done.returncode != 0:
        sys.exit(f"{words[0]}: {done.returncode}\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}")
    return done.stdout


def preloaded(rounds):
    library = HERE / "libmemory-guest.so"
    return {**os.environ, "LD_PRELOAD": f"{library}:{os.environ.get('LD_PRELOAD', '')}", "LD_LIBRARY_PATH": str(HERE),
            "MEMORY_GUEST": str(REPORT.resolve()), "MEMORY_GUEST_ROUNDS": str(rounds)}


def without_hostnic():
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


def said():
    return REPORT.read_text(encoding="utf-8") if REPORT.exists() else ""


def guest_is_at_work(server):
    text = said()
    if "wrong:" in text or server.poll() is not None:
        sys.exit(f"{text[-2000:]}\nthe program has ended: {server.poll()}")
    return "no difference" not in text


def until(true, limit_s, what):
    end = time.monotonic() + limit_s
    while not true():
        if time.monotonic() > end:
            sys.exit(f"{what}: not within {limit_s} s")
        time.sleep(0.05)


class Redis:
    SOCKET = "redis.sock"

    def __init__(self):
        self.saves = 0

    def words(self):
        return ["redis-server", "--port", "0", "--unixsocket", self.SOCKET, "--save", "", "--dir", ".",
                "--enable-debug-command", "yes", "--daemonize", "no",
                # A child that saves lives for some tenths of a second at least.
                "--rdb-key-save-delay", "20"]

    def ask(self, *words, socket=SOCKET):
        return run("redis-cli", "-s", socket, *words, check=False)

    def info(self, name):
        found = re.search(rf"^{name}:(\S+)", self.ask("INFO", "persistence"), re.MULTILINE)
        return found.group(1) if found else ""

    def is_up(self):
        return "PONG" in self.ask("PING")

    def keep_busy(self):
        run("redis-benchmark", "-s", self.SOCKET, "-q", "-n", "4000", "-r", "20000", "-d", "300", "-c", "20",
            "-t", "set,get,lpush,hset")
        self.ask("BGSAVE")
        run("redis-benchmark", "-s", self.SOCKET, "-q", "-n", "2000", "-r", "20000", "-d", "300", "-t", "set,lpop")
        until(lambda: self.info("rdb_bgsave_in_progress") == "0", START_S, "BGSAVE")
        if self.info("rdb_last_bgsave_status") != "ok":
            sys.exit("redis could not save")
        self.saves += 1

    def finish(self, server):
        """What has been saved in the background is what there is."""
        digest = self.ask("DEBUG", "DIGEST").strip()
        self.ask("BGSAVE")
        until(lambda: self.info("rdb_bgsave_in_progress") == "0", START_S, "BGSAVE")
        self.ask("SHUTDOWN", "NOSAVE")
        server.wait(END_S)
        words = [word if word != self.SOCKET else "second.sock" for word in self.words()]
        second = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=without_hostnic())
        until(lambda: "PONG" in self.ask("PING", socket="second.sock"), START_S, "the second server")
        loaded = self.ask("DEBUG", "DIGEST", socket="second.sock").strip()
        self.ask("SHUTDOWN", "NOSAVE", socket="second.sock")
        second.wait(END_S)
        if len(digest) != 40 or digest != loaded:
            sys.exit(f"the digest was {digest}, and is {loaded} where the dump was loaded")
        return f"{self.saves + 1} saves in the background, the same digest"


class Postgres:
    def __init__(self):
        self.here = str(Path.cwd())
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
        self.bin = found[-1] if found else Path(shutil.which("initdb") or "initdb").parent
        self.runs = 0
        run(self.bin / "initdb", "-D", "data", "-U", "us", "-A", "trust", "--no-sync")

    def words(self):
        return [self.bin / "postgres", "-D", "data", "-k", self.here, "-c", "listen_addresses=", "-c", "fsync=off"]

    def ask(self, what):
        return run("psql", "-h", self.here, "-U", "us", "-d", "postgres", "-A", "-t", "-c", what, check=False).strip()

    def is_up(self):
        return self.ask("SELECT 1") == "1"

    def keep_busy(self):
        bench = ["pgbench", "-h", self.here, "-U", "us"]
        if self.runs == 0:
            run(*bench, "-i", "-s", "2", "-q", "postgres")
        # A connection for each transaction, and so a fork.
        run(*bench, "-n", "-C", "-c", "2", "-t", "20", "postgres")
        run(*bench, "-n", "-c", "4", "-t", "100", "postgres")
        self.runs += 1

    def finish(self, server):
        sums = self.ask("SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history),"
                        " (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(delta) FROM pgbench_history),"
                        " (SELECT count(*) FROM pgbench_history)")
        server.terminate()
        server.wait(END_S)
        if sums != f"t|t|{440 * self.runs}":
            sys.exit(f"the sums are not right: {sums}, {self.runs} runs")
        return f"{440 * self.runs} transactions, the same sums"


def main():
    program = {"redis": Redis, "postgres": Postgres}[sys.argv[1]]()
    with open("server.log", "wb") as log, subprocess.Popen(
            program.words(), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            env=preloaded(int(sys.argv[2]))) as server:
        try:
            until(lambda: guest_is_at_work(server) is not None and program.is_up(), START_S, "the program's start")
            turns = 0
            while guest_is_at_work(server) or turns < LEAST_FORKS:
                program.keep_busy()
                turns += 1
            kept = program.finish(server)
        finally:
            server.kill()
            text = said()
            lines = Path("server.log").read_text(encoding="utf-8", errors="replace").splitlines()
            crash = [line for line in lines if "crashed by signal" in line or "SIG" in line or "PANIC" in line]
            print("\n".join([*lines[-20:], *crash[:5], *(line for line in text.splitlines() if "wrong:" in line)]),
                  file=sys.stderr)
    forks, looks = text.count("a fork,"), text.count("a child,")
    if "wrong:" in text or forks < LEAST_FORKS or looks == 0:
        sys.exit(f"{forks} forks, {looks} children that looked later")
    print(f"{sys.argv[2]} rounds, no difference; {forks} forks, {looks} children looked once more; {kept}")


if __name__ == "__main__":
    main()
