# SPDX-License-Identifier: BSD-3-Clause
"""A network that marks packets (ECN), between NICs that speak the standard's transport (docs/roce.md)."""

import shlex

from cm_cases import says
from harness import Case

ROCE = ["--nic", "transport=roce", "--nic", "transport=roce"]
MARKS = ["--impair", "mark 2% kind data"]
COUNTED = ["cnp_sent", "cnp_received", "rate_cuts", "impair_rx_marked"]


def congestion_cases(maker):
    verify = maker.verify_command(["--qps", "2", "--max-bytes", "1m"], "two NICs")
    both = f"{shlex.join(str(word) for word in verify)}; hostnic ctl show counters"
    yield Case("a rate follows marks, and the data is right [two NICs, transport=roce]",
               maker.lab([*ROCE, *MARKS], ["sh", "-c", both]), 120, True,
               says("hostnic-verify: ok:", *(rf"{counter} [1-9]" for counter in COUNTED)))
