#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Starts labs with hosts, ends each in another way, and looks for what they leave behind: processes
in their network namespaces, processes that name their directory, files.

  hosts_lifetime.py HOSTNIC [--count N] [OPTIONS OF THE LAB]

The ways take turns: COMMAND ends and leaves programs in the hosts, one of which ignores SIGTERM; the
lab is killed; the lab is terminated; the process that has the hosts is killed, or that and the lab,
after which the next lab removes the directory."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PATIENCE_S = 60

# Three sleeps (one is a daemon), the shell of one, and a hostnicd.
LEAST_PROGRAMS = 5

HOSTS = "4"
# Programs in both hosts, one of them a daemon that nobody of ours is the parent of, and one that has
# to be killed. The shell says when all run, and waits for input to end.
COMMAND = """
hostnic on 1 -- sleep 1000 & hostnic on 2 -- sh -c 'trap "" TERM; sleep 1000; sleep 1000' &
(hostnic on 2 -- setsid sleep 1000 &)
until hostnic on 1 -- ibv_devinfo -d hnic0 > /dev/null; do sleep 0.1; done
echo up; read line; exit 5
"""


def network_of(pid):
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError:
        return 0


def processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def left(networks, directory):
    """The processes that a lab has left."""
    return [pid for pid in processes() if network_of(pid) in networks or str(directory).encode() in command_line(pid)]


def children_of(pid):
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def run_one(way, command, home):
    """Why not all is gone, or None."""
    lab = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if lab.stdout.readline() != "up\n":
        return "the lab did not start"
    directory, = home.glob("hostnic-hosts-*")
    record = (directory / "lab").read_text().splitlines()
    guardian = int(record[0].split()[0])
    networks = {int(line.split()[-1]) for line in record[1:]}
    # The COMMAND's programs are started side by side: one that is "up" does not speak for the others.
    give_up = time.monotonic() + PATIENCE_S
    while len(left(networks, directory)) < LEAST_PROGRAMS:
        if time.monotonic() > give_up:
            return "the programs of the lab were not found in its namespaces"
        time.sleep(0.02)
    status = 5
    if way == "command ends":
        lab.stdin.write("\n")
        lab.stdin.close()
    elif way == "lab is terminated":
        lab.terminate()
        status = 128 + signal.SIGTERM
    elif way == "guardian is killed":
        os.kill(guardian, signal.SIGKILL)
        lab.stdin.write("\n")
        lab.stdin.close()
    else:
        lab.kill()
        status = -signal.SIGKILL
    if lab.wait() != status:
        return f"the lab ended with {lab.returncode}, not {status}"
    give_up = time.monotonic() + PATIENCE_S
    while left(networks, directory) or directory.exists():
        if time.monotonic() > give_up:
            return (f"left: {[(pid, command_line(pid)) for pid in left(networks, directory)]}, "
                    f"{list(directory.glob('*')) if directory.exists() else 'no files'}")
        time.sleep(0.02)
    return None


def main():
    hostnic, *rest = sys.argv[1:]
    count = 6
    if rest[:1] == ["--count"]:
        count = int(rest[1])
        rest = rest[2:]
    ways = ["command ends", "lab is killed", "lab is terminated", "guardian is killed"]
    with tempfile.TemporaryDirectory(prefix="h", dir=os.environ.get("TMPDIR", "/tmp")) as name:
        home = Path(name)
        os.environ["TMPDIR"] = name
        for number in range(count):
            way = ways[number % len(ways)]
            failed = run_one(way, [hostnic, "lab", "--hosts", HOSTS, *rest, "--", "sh", "-c", COMMAND], home)
            if failed is not None:
                print(f"{way}: {failed}")
                return 1
        if list(home.iterdir()):
            print("left in $TMPDIR:", list(home.iterdir()))
            return 1
        if not killed_with_guardian(hostnic, rest, home):
            return 1
    # In this mount namespace a lab mounts nothing at any time; others may.
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines()
              if "hostnic-hosts-" in line or " /sys/class" in line]
    if mounts:
        print("mounts:", mounts)
        return 1
    print(f"{count} labs left nothing")
    return 0


def killed_with_guardian(hostnic, options, home):
    """Nobody is left who could remove the directory: the next lab does."""
    lab = subprocess.Popen([hostnic, "lab", "--hosts", HOSTS, *options, "--", "sh", "-c", "echo up; exec sleep 1000"],
                           stdout=subprocess.PIPE, text=True)
    if lab.stdout.readline() != "up\n":
        print("lab and guardian are killed: the lab did not start")
        return False
    directory, = home.glob("hostnic-hosts-*")
    guardian, command = (int((directory / "lab").read_text().split()[0]), children_of(lab.pid)[-1])
    for pid in (guardian, lab.pid, command):
        os.kill(pid, signal.SIGKILL)
    lab.wait()
    give_up = time.monotonic() + PATIENCE_S
    while any(str(directory).encode() in command_line(pid) for pid in processes()):
        if time.monotonic() > give_up:
            print("hostnicd outlives the lab and its guardian")
            return False
        time.sleep(0.02)
    if not directory.exists():
        print("the directory is gone: the test tests nothing")
        return False
    subprocess.run([hostnic, "lab", "--hosts", "1", "--", "true"], check=True)
    if list(home.iterdir()):
        print("the next lab did not remove", list(home.iterdir()))
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
