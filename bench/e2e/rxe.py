# SPDX-License-Identifier: BSD-3-Clause
"""hostnic to a Linux kernel's rdma_rxe by the standard's transport, beside the same kernel's rdma_rxe
to rdma_rxe: a bridge with two guests and a hostnicd (docs/interop.md). Either asks the same guest."""

import subprocess
import sys

from e2e import parsers
from e2e.figures import Sheet, job
from e2e.programs import TOP, Unavailable, free_port, run_pair

sys.path.insert(0, str(TOP / "tests" / "interop"))
import ground  # noqa: E402
from ground import HOSTNIC_ADDRESS, PREFIX, RXE_ADDRESS, RXE_GID_INDEX, CannotRun, Ground  # noqa: E402

SECOND_RXE_ADDRESS = "10.77.0.3"
BRIDGE = "rxe-bridge"
FROM_HOSTNIC, FROM_RXE = "hostnic to rxe", "rxe to rxe"
# Program, bytes, messages. An end sets as many READs outstanding as the other says that it has.
RUNS = [("ib_write_bw", 1 << 20, 200, []), ("ib_write_bw", 65536, 3000, []), ("ib_write_bw", 4096, 20_000, []),
        ("ib_send_bw", 65536, 2000, []), ("ib_read_bw", 1 << 20, 150, ["-o", 16]),
        ("ib_read_bw", 65536, 2000, ["-o", 16])]
QUICK_RUNS = RUNS[:1] + RUNS[-1:]
MTUS = (1500, 9000)
LIMIT_S = 60


class BridgedGround(Ground):
    """The guest that serves, another one, and hostnicd, on one bridge."""

    def __init__(self, build, mtu):
        super().__init__(build, mtu, "roce")
        self.second = f"{self.guest}-2"
        self.tap = "hostnic0"  # hostnicd's end of a cable to the bridge

    def start_guest(self):
        for name, tap, address in ((self.guest, "rxe0", RXE_ADDRESS), (self.second, "rxe1", SECOND_RXE_ADDRESS)):
            ground.check(ground.SCRIPTS / "start.sh", self.peer, name, "--tap", tap, "--ip", f"{address}/{PREFIX}",
                         "--mtu", self.mtu, "--netns", self.namespace, "--bridge", BRIDGE)
        for words in (f"link add {self.tap} mtu {self.mtu} type veth peer name switch0 mtu {self.mtu}",
                      f"link set switch0 master {BRIDGE} up",
                      f"addr add {HOSTNIC_ADDRESS}/{PREFIX} dev {self.tap}", f"link set {self.tap} up"):
            ground.check("ip", "-n", self.namespace, *words.split())

    def in_second_guest(self, line):
        return [ground.SCRIPTS / "exec.sh", "--timeout", LIMIT_S, self.peer, self.second, line]

    def take_down(self):
        subprocess.run([ground.SCRIPTS / "stop.sh", self.peer, self.second], capture_output=True, check=False)
        super().take_down()


def bandwidth(at, program, size, messages, options, from_hostnic):
    """Bytes per second of a client at hostnic or in the second guest."""
    port = free_port()
    common = [program, "-F", "--report_gbits", "-s", size, "-n", messages, *options, "-p", port, "-x"]

    def line(*more):
        return " ".join(map(str, [*common, *more]))

    client = (at.on_hostnic(*common, 0, RXE_ADDRESS) if from_hostnic
              else at.in_second_guest(line(RXE_GID_INDEX, RXE_ADDRESS)))
    try:
        output = run_pair(0, at.serving_in_guest(line(RXE_GID_INDEX), port, LIMIT_S),
                          at.when_listening(port, *client), limit_s=2 * LIMIT_S)
        return parsers.perftest_bandwidth(output, size)[0]
    except Unavailable:
        at.clear_guest()
        raise


def run_mtu(bench, mtu):
    sheet = Sheet(f"rxe-{mtu}", f"hostnic's NIC or a kernel's rdma_rxe to rdma_rxe in a guest, MTU {mtu}", "program",
                  "B/s")
    sheet.compare(FROM_HOSTNIC, FROM_RXE)
    at = BridgedGround(bench.build, mtu)
    try:
        at.set_up()
        for program, size, messages, options in QUICK_RUNS if bench.quick else RUNS:
            def measure(from_hostnic, run=(program, size, messages, options)):
                return bandwidth(at, *run, from_hostnic)
            sheet.take_turns(f"{program} -s {size}",
                             [job(FROM_HOSTNIC, lambda measure=measure: measure(True)),
                              job(FROM_RXE, lambda measure=measure: measure(False))], bench.repetitions)
    except CannotRun as error:
        raise Unavailable(str(error)) from None
    finally:
        at.take_down()
    return sheet


def run(bench):
    if ground.missing() is not None:
        raise Unavailable(ground.missing())
    return [run_mtu(bench, mtu) for mtu in (MTUS[:1] if bench.quick else MTUS)]
