# SPDX-License-Identifier: BSD-3-Clause
"""`hostnic trace`: known calls (trace_checks.py) on our devices and on an adapter that is none, stock programs on both
ends, and what a traced program does is what it does otherwise."""

import sys

from command_cases import no_trouble_and, output_has
from harness import HERE, Case

CHECKS = HERE / "trace_checks.py"


def trace_cases(maker):
    hostnic, apps = maker.build / "hostnic", maker.apps / "tests/apps"
    python = [sys.executable, CHECKS]
    yield Case("trace on our devices", [*python, "ours", maker.build, apps], 90, True, output_has("calls are as they were made"))
    yield Case("trace on an adapter", [*python, "adapter", maker.build, apps], 60, True,
               output_has("calls are as they were made"))
    yield Case("trace of rdma_cm", [*python, "cm", maker.build, str(maker.next_port())], 60, True,
               output_has("rdma_cm is traced"))
    yield Case("trace ends with the command's status",
               ["sh", "-c", f"{hostnic} trace -- sh -c 'exit 7'; test $? -eq 7 && echo seven"], 30, True,
               output_has(r"seven\n(.*\n)*.*no call of verbs or librdmacm was seen"))
    yield Case("trace refuses a file it can't write", ["sh", "-c", f"{hostnic} trace -o /nonexistent/x -- true; test $? -eq 1"],
               30, False, output_has("/nonexistent/x: No such file"))
    # A traced server and client finish their work; 2,000 iterations of each call, more than the ring holds.
    port = maker.next_port()
    program = " ".join(maker.may_leak(["ib_send_bw", "-F", "-n", "20000", "-p", str(port)]))
    script = (f"{hostnic} run --device hnic0 -- {hostnic} trace --summary -- {program} & "
              f"{hostnic} run --device hnic1 -- {hostnic} trace -o /dev/null -- {program} 127.0.0.1; wait")
    yield Case("trace under load", [hostnic, "lab", "--", "sh", "-c", script], 60, False,
               no_trouble_and(r" 20\d\d\d +ibv_post_recv\n"))
