# SPDX-License-Identifier: BSD-3-Clause
"""Collectives between several ranks: in the way of gloo's ibverbs transport, and by gloo itself where it is
installed. Their own watchdog ends what hangs, and says who waits for what."""

import re

from harness import Case

ALLREDUCE = "tests/apps/hostnic-allreduce"
GLOO = "tests/apps/hostnic-gloo"

TWO_NICS, ONE_NIC = "hnic0,hnic1", "hnic0"
LOSS = ["--loss", "1%"]

# name, hostnic lab's arguments, the program's, in the quick run
COMMON = [
    ("4 ranks [two NICs, clean]", [], ["--devices", TWO_NICS], True),
    ("4 ranks [two NICs, loss 1%]", LOSS, ["--devices", TWO_NICS, "--rounds", 2], True),
    ("4 ranks [one NIC, loss 1%]", LOSS, ["--devices", ONE_NIC], False),
    ("4 processes [two NICs, clean]", [], ["--processes", "--devices", TWO_NICS], False),
    ("4 processes [two NICs, loss 1%]", LOSS, ["--processes", "--devices", TWO_NICS], False),
    ("16 ranks [two NICs, clean]", [], ["--ranks", 16, "--steps", 2, "--devices", TWO_NICS], False),
    ("16 ranks [two NICs, loss 1%]", LOSS, ["--ranks", 16, "--steps", 2, "--devices", TWO_NICS], False),
]
# Ranks in no group of a power of two; gloo's halving and doubling treats them apart.
ODD = [("5 ranks [two NICs, loss 1%]", LOSS, ["--ranks", 5, "--steps", 3, "--devices", TWO_NICS], False)]


def compared(program):
    def check(output):
        return (None if re.search(rf"{program}: ok: .* [1-9]\d* results compared", output)
                else f"{program} printed no summary")
    return check


def collective_cases(maker):
    """hostnic-gloo is not built where libgloo is not there."""
    for path, table in ((ALLREDUCE, COMMON), (GLOO, COMMON + ODD)):
        name = path.rsplit("/", 1)[1]
        skip = None if (maker.apps / path).exists() else "libgloo was not installed when that was built (libgloo-dev)"
        for variant, lab_arguments, arguments, quick in table:
            yield Case(f"{name} {variant}",
                       maker.lab(lab_arguments, [maker.apps / path, "--seed", maker.seed, *arguments]),
                       120, quick, compared(name), skip=skip if path == GLOO else None)
