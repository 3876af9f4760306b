# SPDX-License-Identifier: BSD-3-Clause
"""iproute2's `rdma`, and the programs of infiniband-diags, on a lab's devices (netlink_checks.py)."""

import shutil
import sys

from command_cases import output_has
from harness import HERE, Case, may_leak, quoted

CHECKS = HERE / "netlink_checks.py"
# A server and a client that have sent and keep their queue pairs; then the check. $h is hostnic.
WHILE_CONNECTED = """h={hostnic}
{first} -- {program} & server=$!
for i in $(seq 300); do {first} -- {listens} | grep -q . && break; sleep 0.1; done
{second} -- {program} {address} & client=$!
trap 'kill $server $client 2>/dev/null; wait' EXIT
for i in $(seq 300); do
  {look} -- $h ctl show qp | grep -q 'outstanding 0 .* bytes 40960 ' && break; sleep 0.1
done
{look} -- {check}"""
ENDED = "rdma agrees with hostnic"


def netlink_cases(maker):
    hostnic = maker.build / "hostnic"
    missing = None if shutil.which("rdma") else "needs iproute2's rdma"
    check = f"{sys.executable} {CHECKS}"
    program = "ib_send_bw -F -n 10 -s 4096 --wait_destroy=60 -p {port}"
    cm = "rping -a {address} -P -v -C 100000000 -s"

    def case(title, lab, places, what, quick=False):
        port = maker.next_port()
        script = WHILE_CONNECTED.format(
            hostnic=hostnic, program=program.format(port=port),
            listens=" ".join(quoted(may_leak(["ss", "-Hltn", "sport", "=", f":{port}"]))), check=f"{check} {what} $h", **places)
        return Case(f"rdma: {title}", [hostnic, "lab", *lab, "--", "bash", "-c", script], 90, quick, output_has(ENDED),
                    skip=missing)

    devices = {"first": "$h run --device hnic0", "second": "$h run --device hnic1", "address": "127.0.0.1",
               "look": "$h run"}
    hosts = {"first": "$h on 1", "second": "$h on 2", "address": "host1", "look": "$h on 2"}
    yield case("queue pairs and all else", [], devices, "objects", True)
    yield case("in a host, udp", ["--hosts", "2"], hosts, "objects", True)
    yield case("in a host, wire", ["--hosts", "2", "--port", "wire"], hosts, "objects")
    yield case("one device of two", [], {**devices, "look": "$h run --device hnic1"}, "objects")
    yield Case("rdma: rdma_cm ids", [hostnic, "lab", "--", "bash", "-c",
               f"{cm.format(address='127.77.0.1')} > /dev/null & server=$!; trap 'kill $server; wait' EXIT; "
               f"for i in $(seq 100); do {hostnic} ctl show cm | grep -q listening && break; sleep 0.1; done; "
               f"{check} cm {hostnic}"], 60, True, output_has(ENDED), skip=missing)
    yield Case("rdma: what it may not do", [hostnic, "lab", "--", sys.executable, CHECKS, "refused", hostnic], 60, True,
               output_has(ENDED), skip=missing)
    yield Case("uverbs0 is there, and says what to do instead", [hostnic, "lab", "--", sys.executable, CHECKS, "uverbs",
               hostnic], 60, True, output_has("uverbs0.*hostnic's devices are opened by libibverbs"))
