#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks that the folders of the NIC include only folders below them (docs/architecture.md, "The NIC"), and those of
the repository only what their place allows."""

import re
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
# From below. A folder may include itself and those before it; "" are the headers at the top that all may include.
NIC = ["", "memory", "packet", "client", "qp", "egress", "transport", "management", "transport/hostnic",
       "transport/unreliable"]
# Beside each other: neither knows the other.
APART = [{"transport", "management"}, {"transport/hostnic", "transport/unreliable"},
         {"management", "transport/hostnic"}, {"management", "transport/unreliable"}]
FOR_ALL = {"counters.h", "limits.h", "port.h", "settings.h"}
# Who may include what, of the folders at the top.
TOPS = {"protocol": {"protocol"}, "config": {"protocol", "config"}, "verbs-shim": {"protocol", "verbs-shim"},
        "dataplane": {"protocol", "config", "dataplane"}}
INCLUDE = re.compile(r'^\s*#include "([^"]+)"', re.MULTILINE)


def includes(folder):
    for path in sorted((TOP / folder).rglob("*")):
        if path.suffix in (".h", ".cc"):
            for included in INCLUDE.findall(path.read_text(encoding="utf-8")):
                yield path.relative_to(TOP).as_posix(), included


def nic_folder(path):
    return path.removeprefix("dataplane/nic/").rpartition("/")[0]


def wrong_in_nic():
    for path, included in includes("dataplane/nic"):
        own = nic_folder(path)
        if not included.startswith("dataplane/nic/") or own in ("", "pch"):
            continue  # what dispatches knows everything
        other = nic_folder(included)
        if other == "" and included.rpartition("/")[2] in FOR_ALL or other == own:
            continue
        if other == "" or other not in NIC or NIC.index(other) > NIC.index(own) or {own, other} in APART:
            yield f"{path} includes {included}, which is not below it"


def wrong_at_the_top():
    for folder, allowed in TOPS.items():
        for path, included in includes(folder):
            top = included.partition("/")[0]
            if top in (*TOPS, "tests", "bench") and top not in allowed:
                yield f"{path} includes {included}: {folder}/ may use {', '.join(sorted(allowed))}"


def check_layers():
    """Whether none is wrong."""
    wrong = [*wrong_in_nic(), *wrong_at_the_top()]
    for line in wrong:
        print(f"FAIL layers: {line}")
    if not wrong:
        print("ok   layers of dataplane/nic and of the repository")
    return not wrong


if __name__ == "__main__":
    sys.exit(0 if check_layers() else 1)
