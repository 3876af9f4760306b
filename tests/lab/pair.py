#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs a server and a client program as one test: starts the server, waits until it listens on a
TCP port, starts the client, prints what both said and exits with 0 only if both did. What they said
on stderr has sections of its own: no warning is glued to a line of results.

  pair.py --port PORT SERVER ARGS ---- CLIENT ARGS

With --port 0 the client starts at once (hostnic-verify retries by itself). The port is looked up in
/proc and never connected to: perftest's server takes the first connection for its client. With
--daemon the server is one that serves for ever: it is ended when the client is done.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time

# A busy machine takes many times what an idle one does.
LISTEN_PATIENCE_S = 120
# After one side has ended, the other has that long.
STRAGGLER_PATIENCE_S = 60
AFTER_FAILURE_PATIENCE_S = 10
TCP_LISTEN = "0A"


def listens(pid, port):
    """Whether something in the network namespace of process `pid` listens on `port`."""
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{pid}/net/{table}", encoding="ascii") as lines:
                next(lines)
                for line in lines:
                    fields = line.split()
                    local = int(fields[1].rsplit(":", 1)[1], 16)
                    if local == port and fields[3] == TCP_LISTEN:
                        return True
        except (OSError, StopIteration, IndexError, ValueError):
            continue
    return False


def wait_until_listening(server, port):
    give_up = time.monotonic() + LISTEN_PATIENCE_S
    while time.monotonic() < give_up:
        if server.poll() is not None:
            return f"the server ended with status {server.returncode} before it listened"
        if listens(server.pid, port):
            return None
        time.sleep(0.02)
    return f"the server did not listen on port {port} within {LISTEN_PATIENCE_S} s"


def wait_for_both(processes, daemon):
    """None, or why not both have ended, or one that should not have."""
    one_ended = None
    while True:
        if daemon:
            if processes["client"].poll() is not None:
                return None
            if processes["server"].poll() is not None:
                return f"the server ended with status {processes['server'].returncode} before the client"
        alive = [name for name, p in processes.items() if p.poll() is None]
        if not alive:
            return None
        failed = any(p.returncode not in (None, 0) for p in processes.values())
        if len(alive) == 1 and one_ended is None:
            one_ended = time.monotonic()
        patience = AFTER_FAILURE_PATIENCE_S if failed else STRAGGLER_PATIENCE_S
        if one_ended is not None and time.monotonic() - one_ended > patience:
            return f"the {alive[0]} still runs {patience} s after the other side ended"
        time.sleep(0.02)


def end(process):
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def run_both(port, server_command, client_command, daemon=False):
    """(None, or what went wrong; what the two wrote, by "server", "server, stderr", ...)."""
    files = {name: tempfile.TemporaryFile()
             for side in ("server", "client") for name in (side, f"{side}, stderr")}
    processes = {}
    problem = None

    def start(name, command):
        processes[name] = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=files[name], stderr=files[f"{name}, stderr"])

    try:
        start("server", server_command)
        if port != 0:
            problem = wait_until_listening(processes["server"], port)
        if problem is None:
            start("client", client_command)
            problem = wait_for_both(processes, daemon)
    except FileNotFoundError as error:
        problem = f"no program {error.filename}"
    finally:
        for process in processes.values():
            end(process)
    outputs = {}
    for name, file in files.items():
        file.seek(0)
        text = file.read().decode(errors="replace").rstrip()
        file.close()
        if text or name in processes:
            outputs[name] = text
    for name, process in processes.items():
        if process.returncode != 0 and not (daemon and name == "server"):
            problem = problem or f"the {name} ended with status {process.returncode}"
    return problem, outputs


def run_pair(port, server_command, client_command, daemon=False):
    """The exit status; all that was written is on stdout then."""
    problem, outputs = run_both(port, server_command, client_command, daemon)
    for name, text in outputs.items():
        print(f"--- {name}")
        print(text)
    if problem is not None:
        print(f"--- pair: {problem}")
    return 1 if problem else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--daemon", action="store_true")
    parser.add_argument("commands", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if "----" not in options.commands:
        parser.error("SERVER ARGS ---- CLIENT ARGS are needed")
    middle = options.commands.index("----")
    # A stop from outside ends both programs through run_pair's finally.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.environ.setdefault("LC_ALL", "C")
    return run_pair(options.port, options.commands[:middle], options.commands[middle + 1:],
                    options.daemon)


if __name__ == "__main__":
    sys.exit(main())
