# SPDX-License-Identifier: BSD-3-Clause
"""What is run over each driver: small numbers, as emulated processors are slow."""

import dataclasses
import re
import sys
from pathlib import Path
from typing import Callable

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from harness import no_trouble, perftest_rows, pingpong_is_ok, verify_is_ok  # noqa: E402
from unreliable_cases import MULTICAST_GID  # noqa: E402

LOSS_PERCENT = 2
VERIFY = Path("tests/apps/hostnic-verify")


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    words: tuple  # the program and its options, without addresses and ports
    check: Callable
    # How its ends find each other: "tcp", "cm" (rdma_cm), "retry" (the client asks until it is heard).
    meets_by: str = "tcp"
    lossy: bool = False  # run while packets are lost, too
    jumbo: bool = False  # run with jumbo frames, too
    brief: bool = False  # run with adapters behind an IOMMU, too
    quick: bool = False
    limit_s: int = 60


def perftest(program, *options, name=None, **more):
    return Row(name or program, (program, "-F", *options), perftest_rows(1), **more)


def rping_is_ok(output):
    return no_trouble(output) if re.search(r"rdma-ping-4: ", output) else "rping has not come to its fifth message"


MAIN = {"jumbo": True, "brief": True}
ROWS = (
    perftest("ib_write_bw", "-s", "65536", "-n", "20", lossy=True, quick=True, **MAIN),
    perftest("ib_read_lat", "-s", "8192", "-n", "20", lossy=True),
    perftest("ib_send_bw", "-s", "16384", "-n", "30", lossy=True),
    perftest("ib_atomic_lat", "-n", "30"),
    Row("ibv_rc_pingpong", ("ibv_rc_pingpong", "-g", "0", "-c", "-n", "50"), pingpong_is_ok),
    Row("ibv_uc_pingpong", ("ibv_uc_pingpong", "-g", "0", "-c", "-n", "50"), pingpong_is_ok, quick=True),
    Row("ibv_ud_pingpong", ("ibv_ud_pingpong", "-g", "0", "-c", "-s", "1024", "-n", "50"), pingpong_is_ok),
    perftest("ib_send_bw", "-c", "UD", "-g", "-M", MULTICAST_GID, "-n", "50", "-r", "64", "-s", "1024",
             name="ib_send_bw, multicast"),
    Row("rping", ("rping", "-C", "5"), rping_is_ok, meets_by="cm"),
    Row("hostnic-verify", (str(VERIFY), "--rounds", "2", "--ops", "12", "--max-bytes", "64k", "--timeout-seconds",
                           "180"), verify_is_ok, meets_by="retry", lossy=True, quick=True, limit_s=120, **MAIN),
)
# What is done to an adapter, and to hostnicd, by name; each once, with Ethernet's usual MTU.
LINK_LOST, REMOVED, NO_HUGE = "link lost and back", "adapter removed", "--no-huge refused"
FRAMES, ENDS_WELL = "frames on the cable", "hostnicd ends well"
DEEDS = (LINK_LOST, REMOVED, NO_HUGE, FRAMES, ENDS_WELL)
