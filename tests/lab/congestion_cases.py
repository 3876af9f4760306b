# SPDX-License-Identifier: BSD-3-Clause
"""A network that marks packets (ECN), between NICs that speak the standard's transport (docs/roce.md)."""

from cm_cases import says
from harness import Case

ROCE = ["--nic", "transport=roce", "--nic", "transport=roce"]
MARKS = ["--impair", "mark 2% kind data"]


def congestion_cases(maker):
    verify = " ".join(f"'{word}'" for word in maker.verify_command(["--qps", "2", "--max-bytes", "1m"], "two NICs"))
    yield Case("a rate follows marks, and the data is right [two NICs, transport=roce]",
               maker.lab([*ROCE, *MARKS], ["sh", "-c", f"{verify}; hostnic ctl show counters"]), 120, True,
               says("hostnic-verify: ok:", r"cnp_sent\s+[1-9]", r"cnp_received\s+[1-9]", r"rate_cuts\s+[1-9]", r"marked\s+[1-9]"))
