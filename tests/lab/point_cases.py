# SPDX-License-Identifier: BSD-3-Clause
"""Trace points (point_checks.py): messages and their steps."""

import sys

from command_cases import output_has
from harness import HERE, Case

CHECKS = HERE / "point_checks.py"


def point_cases(maker):
    hostnic, verify = maker.build / "hostnic", maker.apps / "tests/apps/hostnic-verify"
    yield Case("trace points of each message", [sys.executable, CHECKS, "messages", hostnic, str(maker.next_port())], 180, True,
               output_has("every message has all its steps"))
    yield Case("trace points of a program", [sys.executable, CHECKS, "program", hostnic, verify], 90, False,
               output_has("messages of a program are traced"))
    yield Case("trace points at the prompt", [sys.executable, CHECKS, "prompt", hostnic, str(maker.next_port())], 90, True,
               output_has("traces begin and end as they are told to"))
