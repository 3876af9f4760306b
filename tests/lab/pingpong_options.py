#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs a stock pingpong with each of its options, one by one and by GID, as RoCE needs it, between
the two NICs of the lab that this is the command of: hostnic lab -- pingpong_options.py --build BUILD ibv_rc_pingpong

An option must work, or be refused with the line that says why where the device hasn't got what it
asks for."""

import argparse
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import TAIL_LINES, Case, Ports, pair, pingpong_is_ok, quoted, run_case  # noqa: E402

LIMIT_S = 60

NO_IMPLICIT_ODP = r"The device doesn't support implicit ODP"
# Name, options of both sides, and the line with which the program may leave instead of working.
EVERY = [
    ("plain", [], None),
    ("without -g", None, r"Failed to modify QP.* to RTR|Failed to create AH"),
    ("-d by name", ["-d", "{device}"], None),
    ("-d of nobody", ["-d", "hnic7"], r"IB device hnic7 not found"),
    ("-i 1", ["-i", "1"], None),
    ("-i 2", ["-i", "2"], r"Couldn't get port info|port info for port 2|Failed to modify QP.* to INIT"),
    ("-s 1", ["-s", "1"], None),
    ("-s 2048", ["-s", "2048"], None),
    ("-r 1", ["-r", "1"], None),
    ("-r 16", ["-r", "16"], None),
    ("-r 4000", ["-r", "4000"], None),
    ("-n 1", ["-n", "1"], None),
    ("-n 5000", ["-n", "5000"], None),
    ("-l 3", ["-l", "3"], None),
    ("-e", ["-e"], None),
    ("-g 99", ["-g", "99"], r"can't read sgid of index 99|[Cc]ould not get local gid for gid index 99"),
    ("-c", ["-c"], None),
    ("-c -e", ["-c", "-e"], None),
]
CONNECTED = [
    ("-s 65535", ["-s", "65535", "-n", "200"], None),
    ("-s 1048576 -c", ["-s", "1048576", "-n", "100", "-c"], None),
    *[(f"-m {mtu}", ["-m", mtu], None) for mtu in ("256", "512", "1024", "2048", "4096")],
    ("-m 300", ["-m", "300"], r"[Uu]sage"),
]
OPTIONS = {
    "ibv_rc_pingpong": [
        *EVERY, *CONNECTED,
        ("-o -c", ["-o", "-c"], None),
        ("-o -c -e -N -s 100000", ["-o", "-c", "-e", "-N", "-s", "100000"], None),
        ("-O", ["-O"], NO_IMPLICIT_ODP),
        ("-o -P -c", ["-o", "-P", "-c"], None),
        ("-t", ["-t"], None),
        ("-j", ["-j"], r"doesn't support dm|device memory"),
        ("-N", ["-N"], None),
        ("-N -t -c", ["-N", "-t", "-c"], None),
        ("-N -e -c", ["-N", "-e", "-c"], None),
        ("-N -m 4096 -s 100000", ["-N", "-m", "4096", "-s", "100000"], None),
    ],
    "ibv_uc_pingpong": [*EVERY, *CONNECTED],
    "ibv_ud_pingpong": EVERY,
    "ibv_srq_pingpong": [
        *EVERY, *CONNECTED,
        ("-q 1", ["-q", "1"], None),
        ("-q 5", ["-q", "5"], None),
        ("-q 1024", ["-q", "1024"], r"num_qp 1024 > 1024|rx_depth|[Uu]sage"),
        ("-o", ["-o"], None),
        ("-o -c -q 5", ["-o", "-c", "-q", "5"], None),
    ],
}
# Not here: -t with -e. The program takes an event whose completion it has polled already for an
# error, which every adapter may send it.
# What one service can't bear, and why.
UNFIT = {
    # Receives that are missing lose messages, as they should; nobody repeats them.
    ("ibv_uc_pingpong", "-r 1"), ("ibv_ud_pingpong", "-r 1"),
    # rx_depth must be at least the number of queue pairs.
    ("ibv_srq_pingpong", "-r 1"),
}


def command(build, device, program, options, port):
    if options is None:
        options = []
    elif "-g" not in options:
        options = ["-g", "0", *options]
    words = [program, *(word.format(device=device) for word in options), "-p", str(port)]
    # Two hosts; with -d the program itself picks one of all devices.
    if "-d" in options:
        return words
    return [str(build / "hostnic"), "run", "--device", device, "--", *words]


def verdict_of(reason, output, refusal):
    if refusal is None:
        return "ok" if reason is None else "FAIL"
    # Refused by both sides: a clear line, and no status of success.
    if reason is None or not reason.startswith("exit status"):
        return "ok" if reason is None else "FAIL"
    return "refused" if re.search(refusal, output) else "FAIL"


def timestamps_are_sane(options, output):
    if options is None or "-t" not in options:
        return None
    if not re.search(r"Max receive completion clock cycles|[Mm]ax.*clock", output):
        return "no timestamps in the output"
    return None


def run(build, program, only):
    failed = done = 0
    ports = Ports()
    for name, options, refusal in OPTIONS[program]:
        if (program, name) in UNFIT or not re.search(only, name):
            continue
        port = ports.next()
        case = Case(name, pair(port, command(build, "hnic0", program, options, port),
                               [*command(build, "hnic1", program, options, port), "127.0.0.1"]),
                    LIMIT_S, check=lambda output, options=options: pingpong_is_ok(output) or
                    timestamps_are_sane(options, output))
        reason, output, seconds = run_case(case)
        verdict = verdict_of(reason, output, refusal)
        done += 1
        print(f"{verdict:8}{program} {name} ({seconds:.1f})", flush=True)
        if verdict == "FAIL":
            failed += 1
            print(f"     {reason}")
            for line in output.rstrip().splitlines()[-TAIL_LINES:]:
                print(f"     | {line}")
            print("     in a lab: " + " ".join(quoted(case.command)), flush=True)
    print(f"{program}: {done - failed} of {done} as they should")
    return 1 if failed or not done else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--only", default="", help="options whose name matches this regex")
    parser.add_argument("program", choices=sorted(OPTIONS))
    options = parser.parse_args()
    return run(options.build, options.program, options.only)


if __name__ == "__main__":
    sys.exit(main())
