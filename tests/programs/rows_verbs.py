# SPDX-License-Identifier: BSD-3-Clause
"""Programs that use libibverbs and exchange addresses by TCP."""

import sys
from pathlib import Path

from row import LOST_ENDS_IT, Row, through

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
from outputs import NUMBER  # noqa: E402

VERBS = []


def tcp_pair(group, name, package, command, **more):
    VERBS.append(Row(group, name, [package], server=f"{command} -p {{port}}", client=f"{command} -p {{port}} 127.0.0.1",
                     **more))


# libibverbs' examples compare the bytes with -c.
for service in ("rc", "uc", "ud", "srq"):
    lossless = service in ("uc", "ud")
    tcp_pair("libibverbs", f"ibv_{service}_pingpong", "ibverbs-utils",
             f"ibv_{service}_pingpong -g 0 {'' if service == 'srq' else '-c '}-n 1000 -s 1024",
             expect=(r" iters in (.|\n)* iters in ",), moves=through(2 * 1000 * 1024), loses=not lossless,
             ci=service in ("rc", "srq"), note=LOST_ENDS_IT if lossless else "")
tcp_pair("libibverbs", "ibv_xsrq_pingpong", "ibverbs-utils", "timeout 10 ibv_xsrq_pingpong -g 0",
         expect=(r"XRC|xrc",), strict=False, loses=False, listens=False, fails="no XRC")
for program, expect in (("ibv_devinfo -v", r"hnic0(.|\n)*PORT_ACTIVE(.|\n)*RoCE v2"),
                        ("ibv_devices", r"hnic0(.|\n)*hnic1")):
    VERBS.append(Row("libibverbs", program, ["ibverbs-utils"], client=program, expect=(expect,), loses=False, ci=True))

# perftest: each program with each service it has.
TIMES = 500
PERFTEST = [("send", ("RC", "UC", "UD")), ("write", ("RC", "UC")), ("read", ("RC",)), ("atomic", ("RC",))]
for operation, services in PERFTEST:
    for service in services:
        for measure in ("bw", "lat"):
            size = {"lat": 64}.get(measure, 4096 if service == "UD" else 65536)
            size = 8 if operation == "atomic" else size
            of_size = "" if operation == "atomic" else f" -s {size}"
            unreliable = "" if service == "RC" else f" -c {service}"
            counted = {"atomic": {"atomics_executed": TIMES}, "read": {"read_requests_served": 1}}.get(operation, {})
            tcp_pair("perftest", f"ib_{operation}_{measure}{unreliable}", "perftest",
                     f"ib_{operation}_{measure} -F -n {TIMES}{of_size}{unreliable}",
                     expect=(rf"\n *{size} +{TIMES} ",), moves=through(TIMES * size, **counted), loses=service == "RC",
                     ci=measure == "bw" and service == "RC", note="" if service == "RC" else LOST_ENDS_IT)
for program in ("ib_write_bw", "ib_send_bw", "ib_read_lat", "ib_atomic_bw"):
    VERBS.append(Row("perftest", f"{program} -R", ["perftest"], server=f"{program} -R -F -n {TIMES}",
                     client=f"{program} -R -F -n {TIMES} 127.77.0.1", expect=(rf"\n *\d+ +{TIMES} ",),
                     moves=through(1000, management_sent=4), ci=program == "ib_send_bw",
                     note="connects by rdma_cm"))

# A test of qperf lasts at least a second.
# Without -cm it knows its peer by LID alone.
BY_LID = ["--nic", "lid=from-address", "--nic", "lid=from-address"]
QPERF = [
    ("rc", "rc_bi_bw rc_bw rc_lat rc_rdma_read_bw rc_rdma_read_lat rc_rdma_write_bw rc_rdma_write_lat", True),
    ("rc atomics", "rc_compare_swap_mr rc_fetch_add_mr ver_rc_compare_swap ver_rc_fetch_add", True),
    ("uc", "uc_bi_bw uc_bw uc_lat uc_rdma_write_bw uc_rdma_write_lat", False),
    ("ud", "ud_bi_bw ud_bw ud_lat", False),
]
for what, tests, loses in QPERF:
    for options in ("", "-cm 1 ") if what == "rc" else ("",):
        VERBS.append(Row("qperf", f"qperf {options}{what}", ["qperf"], server="qperf -lp {port}", daemon=True,
                         client=f"qperf 127.0.0.1 -lp {{port}} -t 1 {options}{tests}",
                         expect=(rf"= +{NUMBER} ",), moves=through(100000), loses=loses, limit_s=120,
                         ci=bool(options), nics=[] if options else BY_LID,
                         note="; ".join(([] if options else ["needs NICs with LIDs (`lid=from-address`)"]) +
                                        ([] if loses else [LOST_ENDS_IT]))))

for program, package, expect in (
        ("ibstat", "infiniband-diags", r"CA 'hnic0'(.|\n)*State: Active"),
        ("ibstatus", "infiniband-diags", r"'hnic0' port 1(.|\n)*ACTIVE"),
        ("lstopo-no-graphics --of console", "hwloc-nox", r"Machine")):
    VERBS.append(Row("device information", program, [package], client=f"PATH=$PATH:/usr/sbin {program}",
                     expect=(expect,), loses=False, ci=True, strict=False,
                     note="starts at once; lists no device that has no bus" if "lstopo" in program else ""))
