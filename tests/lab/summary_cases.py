# SPDX-License-Identifier: BSD-3-Clause
"""`hostnic lab --summary` (summary_checks.py): files for CI systems."""

import sys

from command_cases import output_has
from harness import HERE, Case

CHECKS = HERE / "summary_checks.py"


def summary_cases(maker):
    hostnic, mistakes = maker.build / "hostnic", maker.apps / "tests/apps/hostnic-mistakes"
    yield Case("a lab's summary as JSON and JUnit", [sys.executable, CHECKS, "lab", hostnic, str(maker.next_port()), mistakes], 90,
               True, output_has("summaries of a lab are right"))
    yield Case("a summary of hosts", [sys.executable, CHECKS, "hosts", hostnic, str(maker.next_port()), mistakes], 120,
               False, output_has("summaries of hosts are right"))
    yield Case("a summary has to be XML or JSON",
               ["sh", "-c", f"{hostnic} lab --summary x.txt -- true; test $? -eq 2"], 30, False,
               output_has("--summary: x.txt: use FILE.xml or FILE.json"))
    yield Case("a summary that can't be written is said",
               ["sh", "-c", f"{hostnic} lab --summary /nonexistent/x.json -- true"], 30, False,
               output_has("--summary: /nonexistent/x.json: No such file"))
