# SPDX-License-Identifier: BSD-3-Clause
"""What operators are told (operate_checks.py): JSON, metrics, errors, and the page about a run."""

import sys

from command_cases import output_has
from harness import HERE, Case

CHECKS = HERE / "operate_checks.py"
# A server and a client that have sent and keep their queue pairs; then the check. $h is hostnic.
WHILE_CONNECTED = """h={hostnic}
$h run --device hnic0 -- {program} & server=$!
$h run --device hnic1 -- {program} 127.0.0.1 & client=$!
trap 'kill $server $client 2>/dev/null; wait' EXIT
for i in $(seq 300); do
  $h ctl show qp | grep -q 'outstanding 0 .* bytes 40960 ' && break; sleep 0.1
done
{check}"""


def operate_cases(maker):
    hostnic, hostnicd = maker.build / "hostnic", maker.build / "hostnicd"
    for name, what, pattern in [("every show is JSON, too", "json", "json agrees with text"),
                                ("metrics agree with counters", "metrics", "metrics are well-formed"),
                                ("hostnic top, plain and on a terminal", "top", "top is fine")]:
        script = WHILE_CONNECTED.format(
            hostnic=hostnic, program=f"ib_send_bw -F -n 10 -s 4096 --wait_destroy=60 -p {maker.next_port()}",
            check=f"{sys.executable} {CHECKS} {what} $h")
        yield Case(name, [hostnic, "lab", "--", "bash", "-c", script], 90, True, output_has(pattern))
    yield Case("metrics by HTTP", [sys.executable, CHECKS, "scrape", hostnicd, hostnic], 60, True,
               output_has("metrics are served"))
    yield Case("errors survive a restart", [sys.executable, CHECKS, "errors", hostnicd, hostnic,
                                             maker.apps / "tests/apps/hostnic-mistakes"], 90, True,
               output_has("errors survive a restart"))
    yield Case("hostnic report agrees with counters", [sys.executable, CHECKS, "report", hostnic, str(maker.seed)], 60, True,
               output_has("the page agrees with the counters"))
    for name, line, pattern in [
            ("a file that is none", f"{hostnic} report /dev/null", "/dev/null: no pcapng file that can be read: it is empty"),
            ("a file that is not there", f"{hostnic} report /nonexistent", "/nonexistent: No such file"),
            ("a file of something else", f"{hostnic} report {CHECKS}", "it does not begin with a section")]:
        yield Case(f"hostnic report refuses {name}", ["sh", "-c", f"{line}; test $? -eq 1"], 30, False, output_has(pattern))
