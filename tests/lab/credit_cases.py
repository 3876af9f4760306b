# SPDX-License-Identifier: BSD-3-Clause
"""credit-channel: messages that wait for credit. No NIC of the lab has ever answered RNR, and no CQ
overflowed; without the rules both happen."""

import re

from harness import Case, no_trouble

CREDIT = "tests/apps/credit-channel"

UNEQUAL = ["--depths", "64,16,8,8", "--peer-depths", "2,3,1,2"]
# Name, arguments, in the quick run.
LOADS = [
    ("16 channels", ["--channels", "16", "--messages", "500"], False),
    ("4 threads on a channel, unequal depths", [*UNEQUAL, "--channels", "2", "--senders", "4", "--messages", "500"], True),
    ("smallest queues", ["--tiny", "--messages", "500"], False),
    ("a slow receiver", [*UNEQUAL, "--slow-receiver", "500", "--channels", "1", "--messages", "300"], False),
]
PLACES = {"two NICs": [], "one NIC": ["--device", "hnic0", "--peer-device", "hnic0"]}
NETWORKS = {"clean": [], "loss 5%": ["--loss", "5%"]}


def outside(command):
    """A shell line: the program, and what hostnicd counted."""
    return ["sh", "-c", " ".join(map(str, command)) + "; status=$?; hostnic ctl 'show counters all'; exit $status"]


def credit_is_ok(nics, lossy):
    def check(output):
        if not re.search(r"credit-channel: ok: .* [1-9]\d* messages verified, [1-9]\d* WRITEs read back, "
                         rf".*rnr naks 0 in {2 * nics} counters, cq overruns 0,", output):
            return "credit-channel printed no summary of a good run"
        if re.findall(r"hnic\d rnr_nak_(?:sent|received) (\d+)", output) != ["0"] * 4:
            return "an RNR NAK was sent"
        if lossy and not re.search(r"retransmitted_packets [1-9]", output):
            return "nothing was lost"
        return no_trouble(output)

    return check


def credit_cases(maker):
    program = [maker.apps / CREDIT, "--seed", maker.seed]
    for place, devices in PLACES.items():
        for network, impaired in NETWORKS.items():
            for name, arguments, quick in LOADS:
                yield Case(f"credit-channel {name} [{place}, {network}]",
                           maker.lab(impaired, outside([*program, *arguments, *devices])), 120,
                           quick and place == "two NICs", credit_is_ok(2 if place == "two NICs" else 1, impaired))
    # What the asserted counters look like when the rules are broken. The program ends with 1.
    for name, arguments, told in [
            ("without credits", "--slow-receiver 1000 --channels 1 --depths 64,16,8,8 --peer-depths 4,3,1,1 "
             "--without-credits", [r"RNR retry counter exceeded", r"rnr_nak_sent [1-9]"]),
            ("a CQ that is too small", "--depths 64,16,8,8 --cq-entries 4", [r"a CQ overflowed"])]:
        line = f"{program[0]} {arguments}; test $? = 1 && hostnic ctl 'show counters all'"
        yield Case(f"credit-channel {name} fails", maker.lab([], ["sh", "-c", line]), 60, True,
                   lambda output, told=told: next((f"the output does not match {pattern!r}" for pattern in told
                                                   if not re.search(pattern, output)), None))
