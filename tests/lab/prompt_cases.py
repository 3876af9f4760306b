# SPDX-License-Identifier: BSD-3-Clause
"""The prompt of `hostnic ctl` (prompt_checks.py), while programs talk."""

import sys

from command_cases import output_has
from harness import HERE, Case

CHECKS = HERE / "prompt_checks.py"
WHILE_BUSY = """{hostnic} run --device hnic0 -- ib_send_bw -F -D 60 -s 4096 -p {port} >/dev/null 2>&1 & server=$!
{hostnic} run --device hnic1 -- ib_send_bw -F -D 60 -s 4096 -p {port} 127.0.0.1 >/dev/null 2>&1 & client=$!
trap 'kill $server $client 2>/dev/null; wait' EXIT
{check}"""


def prompt_cases(maker):
    hostnic = maker.build / "hostnic"
    script = WHILE_BUSY.format(hostnic=hostnic, port=maker.next_port(), check=f"{sys.executable} {CHECKS} {hostnic}")
    yield Case("the prompt of hostnic ctl", [hostnic, "lab", "-q", "--", "bash", "-c", script], 120, True,
               output_has("the prompt is fine"))
