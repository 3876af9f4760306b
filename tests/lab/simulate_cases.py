# SPDX-License-Identifier: BSD-3-Clause
"""`hostnic simulate` (simulate_checks.py): its numbers, that they are the same each time, its picture, and what it says
of options that are none."""

import sys

from command_cases import output_has
from harness import HERE, Case

CHECKS = HERE / "simulate_checks.py"
GOLDEN = HERE.parents[1] / "bench" / "recovery" / "golden.csv"


def simulate_cases(maker):
    hostnic = maker.build / "hostnic"
    for what, pattern, quick in [("numbers", "numbers are right", True), ("same", "write the same bytes", False),
                                 ("picture", "picture is well-formed", True)]:
        yield Case(f"hostnic simulate: {what}", [sys.executable, CHECKS, what, hostnic], 120, quick, output_has(pattern))
    yield Case("hostnic simulate: the recovery study", [sys.executable, CHECKS, "study", hostnic, GOLDEN], 120, False,
               output_has("study is what it was"))
    for words, status, pattern in [
            ("--loss 7", 1, "--loss 7: use a percentage"),
            ("--policy best", 1, "--policy best: no such policy .there are selective, "),
            ("--impair 'drop 1x'", 1, "--impair: column 6: "),
            ("--study none", 1, "--study none: no such study .there are recovery, "),
            ("--csv --svg", 2, "simulate --help"),
            ("--nonsense", 2, "simulate --help"),
            ("--messages 1 -o /nonexistent/x", 1, "/nonexistent/x: No such file")]:
        yield Case(f"hostnic simulate refuses {words}",
                   ["sh", "-c", f"{hostnic} simulate {words}; test $? -eq {status}"], 30, False, output_has(pattern))
