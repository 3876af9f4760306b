# SPDX-License-Identifier: BSD-3-Clause
"""What is run between hostnic and rdma_rxe, with either of them as the client."""

import dataclasses
import re
import sys
from pathlib import Path
from typing import Callable

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from harness import no_trouble, perftest_rows, pingpong_is_ok, verify_is_ok  # noqa: E402

ALL_SIZES = 23


@dataclasses.dataclass
class Row:
    service: str  # RC, UC, UD
    name: str
    # Program and options, without ports and addresses.
    program: str
    options: list
    check: Callable
    # How its ends find each other: "tcp", "cm" (rdma_cm), "retry" (the client asks until it is heard).
    meets_by: str = "tcp"
    # Whether it is run while one in a hundred of the peer's frames is lost, too.
    lossy: bool = False
    quick: bool = False
    limit_s: int = 60
    # What the ends have of their own.
    client_options: tuple = ()
    server_options: tuple = ()


def perftest(program, title, options, *, rows=1, service="RC", **more):
    if service != "RC":
        options = ["-c", service, *options]
    if "read" in program or "atomic" in program:
        # An end sets as many READs outstanding as the other says, and rxe's 128 are too many for hostnic.
        options = ["-o", "16", *options]
    return Row(service, f"{program} {title}".strip(), program, ["-F", *options], perftest_rows(rows), **more)


def says(*patterns):
    def check_output(output):
        for pattern in patterns:
            if not re.search(pattern, output):
                return f"the output does not match {pattern!r}"
        return no_trouble(output)
    return check_output


def pingpong(service, title, options, **more):
    name = "srq" if service == "SRQ" else service.lower()
    if "-n" not in options:
        options = ["-n", "300", *options]  # a busy machine takes long to change sides
    program = f"ibv_{name}_pingpong"
    return Row("RC" if service == "SRQ" else service, f"{program} {title}".strip(), program, options,
               pingpong_is_ok, **more)


def cm(service, name, program, options, good, **more):
    return Row(service, name, program, options, good, meets_by="cm", **more)


BOTH_STATUSES = says(r"return status 0(.|\n)*return status 0")
# Receives for all iterations are posted ahead where nobody repeats what finds none.
ROWS = [
    pingpong("UC", "", ["-c"], quick=True),
    pingpong("UC", "-e", ["-c", "-e"]),
    pingpong("UC", "-s 65536", ["-c", "-s", "65536", "-n", "200"]),
    pingpong("UD", "", ["-s", "1024", "-c"], quick=True),
    pingpong("UD", "-e", ["-s", "1024", "-c", "-e"]),
    perftest("ib_write_bw", "-c UC", ["-n", "500"], service="UC", quick=True),
    perftest("ib_write_bw", "-c UC -a", ["-a", "-n", "20"], rows=ALL_SIZES, service="UC", limit_s=180),
    perftest("ib_write_bw", "-c UC -b -q 8", ["-b", "-q", "8", "-n", "100"], service="UC"),
    # No more at once than a tap's queue takes: of the rest nobody says that it is lost.
    perftest("ib_send_bw", "-c UC", ["-n", "20", "-r", "512", "-s", "16384"], service="UC"),
    perftest("ib_write_lat", "-c UC", ["-n", "200"], service="UC"),
    perftest("ib_send_lat", "-c UC", ["-n", "200"], service="UC"),
    perftest("ib_send_bw", "-c UD", ["-n", "500", "-r", "512", "-s", "1024"], service="UD", quick=True),
    perftest("ib_send_lat", "-c UD", ["-n", "200"], service="UD"),
    perftest("ib_send_lat", "-c UD -e", ["-n", "200", "-e"], service="UD"),
    cm("UD", "udaddy", "udaddy", [], BOTH_STATUSES, quick=True),

    pingpong("RC", "", ["-c"], quick=True, lossy=True),
    pingpong("RC", "-e", ["-c", "-e"], lossy=True),
    pingpong("RC", "-s 1048576", ["-c", "-s", "1048576", "-n", "50"], lossy=True),
    pingpong("SRQ", "", ["-c"], quick=True, lossy=True),
    pingpong("SRQ", "-q 5 -e", ["-c", "-q", "5", "-e"], lossy=True),
    perftest("ib_write_bw", "", ["-n", "500"], quick=True, lossy=True),
    perftest("ib_write_bw", "-a", ["-a", "-n", "20"], rows=ALL_SIZES, limit_s=180),
    perftest("ib_write_bw", "-b", ["-b", "-n", "200"], lossy=True),
    perftest("ib_write_bw", "-q 8", ["-q", "8", "-n", "100"], lossy=True),
    perftest("ib_write_lat", "", ["-n", "500"], lossy=True),
    perftest("ib_write_lat", "-a", ["-a", "-n", "20"], rows=ALL_SIZES, limit_s=240),
    perftest("ib_read_bw", "", ["-n", "500"], quick=True, lossy=True),
    perftest("ib_read_bw", "-a", ["-a", "-n", "20"], rows=ALL_SIZES, limit_s=180),
    perftest("ib_read_bw", "-b", ["-b", "-n", "200"], lossy=True),
    perftest("ib_read_bw", "-q 8", ["-q", "8", "-n", "100"], lossy=True),
    perftest("ib_read_lat", "", ["-n", "500"], lossy=True),
    perftest("ib_read_lat", "-a", ["-a", "-n", "20"], rows=ALL_SIZES, limit_s=240),
    perftest("ib_send_bw", "", ["-n", "500"], quick=True, lossy=True),
    perftest("ib_send_bw", "-a", ["-a", "-n", "20"], rows=ALL_SIZES, limit_s=180),
    perftest("ib_send_bw", "-b", ["-b", "-n", "200"], lossy=True),
    perftest("ib_send_bw", "-q 8", ["-q", "8", "-n", "100"], lossy=True),
    perftest("ib_send_bw", "--use-srq", ["--use-srq", "-n", "300"], lossy=True),
    perftest("ib_send_bw", "--use-srq -q 8", ["--use-srq", "-q", "8", "-n", "100"], lossy=True),
    perftest("ib_send_bw", "-e", ["-e", "-n", "300"], lossy=True),
    perftest("ib_send_lat", "", ["-n", "500"], lossy=True),
    perftest("ib_send_lat", "-a", ["-a", "-n", "20"], rows=ALL_SIZES, limit_s=240),
    perftest("ib_send_lat", "-e", ["-e", "-n", "300"], lossy=True),
    perftest("ib_atomic_bw", "", ["-n", "500"], quick=True, lossy=True),
    perftest("ib_atomic_bw", "-A CMP_AND_SWAP", ["-A", "CMP_AND_SWAP", "-n", "500"], lossy=True),
    perftest("ib_atomic_bw", "-b", ["-b", "-n", "200"], lossy=True),
    perftest("ib_atomic_bw", "-q 8", ["-q", "8", "-n", "100"], lossy=True),
    # rdma_rxe rounds what is agreed up to 8.
    perftest("ib_atomic_bw", "-o 7 -b -q 3", ["-o", "7", "-b", "-q", "3", "-n", "100"], lossy=True),
    perftest("ib_atomic_lat", "", ["-n", "500"], lossy=True),
    cm("RC", "rping", "rping", ["-C", "20", "-V"], says(r"rdma-ping-19: "), quick=True, lossy=True,
       client_options=("-v",)),
    cm("RC", "ucmatose", "ucmatose", ["-c", "5", "-C", "20"], BOTH_STATUSES, lossy=True),
    perftest("ib_write_bw", "-R", ["-R", "-n", "300"], meets_by="cm", lossy=True, limit_s=20),
    perftest("ib_read_bw", "-R", ["-R", "-n", "300"], meets_by="cm", lossy=True, limit_s=20),
    perftest("ib_send_lat", "-R", ["-R", "-n", "300"], meets_by="cm", lossy=True, limit_s=20),
    # Two of rdma_rxe against each other stop at a fence, too.
    Row("RC", "hostnic-verify --no-fences", "hostnic-verify", ["--no-fences", "--qps", "2", "--max-bytes", "256k"],
        verify_is_ok, meets_by="retry", quick=True, lossy=True, limit_s=180),
    Row("RC", "hostnic-verify --no-fences small", "hostnic-verify",
        ["--no-fences", "--qps", "4", "--max-bytes", "8k", "--ops", "100", "--events"], verify_is_ok,
        meets_by="retry", lossy=True),
]
