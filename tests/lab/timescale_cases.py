# SPDX-License-Identifier: BSD-3-Clause
"""`hostnic lab --timescale`: what ends after minutes ends at once. The limits are shorter than what it takes else."""

from harness import Case
from fault_cases import has_all


def timescale_cases(maker):
    hostnic = maker.build / "hostnic"
    port = maker.next_port()
    write = f"ib_write_bw -F -n 5 -u 22 -p {port}"
    script = (f"{hostnic} run --device hnic0 -- {write} & server=$!; {hostnic} run --device hnic1 -- {write} 127.0.0.1; "
              "echo client $?; wait $server; true")
    yield Case("timescale: a dead peer at timeout 22, 172 s else",
               [hostnic, "lab", "-q", "--timescale", "100", "--impair", "drop all", "--", "sh", "-c", script], 20, True,
               has_all("Failed status 12: ", "client [1-9]"))
    port = maker.next_port()
    script = (f"rping -s -a 127.77.0.1 -p {port} -C 1 & server=$!; {hostnic} run --device hnic1 -- rping -c -a 127.77.0.1 "
              f"-p {port} -C 1; echo client $?; kill $server; wait $server; true")
    yield Case("timescale: rdma_cm gives up, after 77 s else",
               [hostnic, "lab", "-q", "--timescale", "100", "--impair", "drop all", "--", "sh", "-c", script], 20, True,
               has_all("RDMA_CM_EVENT_UNREACHABLE", "client [1-9]"))
    port = maker.next_port()
    write = f"ib_write_bw -F -n 500 -p {port}"
    script = (f"{hostnic} run --device hnic0 -- {write} & server=$!; {hostnic} run --device hnic1 -- {write} 127.0.0.1 && "
              "wait $server && echo both ended well")
    yield Case("timescale: losses are repaired as always",
               [hostnic, "lab", "-q", "--timescale", "100", "--loss", "1%", "--", "sh", "-c", script], 60, False,
               has_all("both ended well"))
