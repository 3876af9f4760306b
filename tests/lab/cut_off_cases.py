# SPDX-License-Identifier: BSD-3-Clause
"""Parts of the conformance suite over ports whose packets are copied when they leave, with both NICs on one pair of
interfaces, in a network namespace of their own: registered files that become shorter, and what is posted last."""

import os
import re
import shutil

from harness import Case

PORT = "net_af_packet"
TESTS = {"files that are cut off": "CutOffMemory.*:*GoneMemory.*",
         "what is posted last": "*LastSends.*:*LastDeeds*"}
# Path MTU 4096 needs more than Ethernet's usual MTU.
INTERFACES = ("ip link set lo up; ip link add hnic-a mtu 9000 type veth peer name hnic-b mtu 9000; "
              "for each in hnic-a hnic-b; do ip link set $each up; done; ")


def reason_against(suite):
    if not suite.exists():
        return "the conformance suite is not built with sanitizers"
    if os.geteuid() != 0:
        return "net_af_packet needs root"
    missing = next((each for each in ("unshare", "ip") if shutil.which(each) is None), None)
    return missing and f"{missing} is not installed"


def all_passed(output):
    if "[  FAILED  ]" not in output and re.search(r"\[  PASSED  \] [1-9]\d* tests", output):
        return None
    return " ".join(sorted(set(re.findall(r"\[  FAILED  \] (\S+)", output)))) or "it has not come to its end"


def cut_off_cases(maker):
    suite = maker.build / "tests/conformance/conformance-test"
    nics = " ".join(f"--nic port={PORT}{number},iface=hnic-{end},ip=10.79.0.{number + 1}/24"
                    for number, end in enumerate("ab"))
    for title, tests in TESTS.items():
        for transport in ("hostnic", "roce"):
            line = (f"{INTERFACES} exec {maker.build}/hostnic lab -q {nics.replace('ip=', f'transport={transport},ip=')} -- "
                    f"{suite} --gtest_filter='{tests}'")
            yield Case(f"{title} over {PORT}, transport={transport}", ["unshare", "-n", "sh", "-c", line], 180,
                       transport == "hostnic", all_passed, skip=reason_against(suite))
