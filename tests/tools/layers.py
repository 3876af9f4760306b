#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks that the folders of the NIC and of the library include only folders below them (docs/architecture.md, "The NIC",
"The library"), and those of the repository only what their place allows."""

import re
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
# From below. A folder may include itself and those before it; "" are the headers at the top that all may include.
NIC = ["", "memory", "packet", "client", "qp", "execute", "answers", "egress", "transport", "management", "transport/hostnic",
       "transport/mrc", "transport/roce", "transport/unreliable"]
# Beside each other: neither knows the other.
APART = [{"execute", "answers"}, {"execute", "egress"}, {"transport", "management"}, {"transport/hostnic", "transport/roce"},
         {"transport/hostnic", "transport/unreliable"}, {"transport/roce", "transport/unreliable"},
         {"transport/mrc", "transport/hostnic"}, {"transport/mrc", "transport/roce"},
         {"transport/mrc", "transport/unreliable"}, {"management", "transport/mrc"},
         {"management", "transport/hostnic"}, {"management", "transport/roce"}, {"management", "transport/unreliable"}]
FOR_ALL = {"address_book.h", "counters.h", "limits.h", "port.h", "settings.h"}
# The library's folders, from below, and what each may include besides itself.
SHIM = {"elf": set(), "base": set(), "memory": {"elf", "base"}, "driver": {"base"},
        "runtime": {"base", "memory", "driver"}, "cm": {"elf", "base", "runtime"},
        "netlink": {"elf", "base", "runtime", "cm"}, "hooks": {"elf", "base", "runtime", "cm"}, "trace": set(), "faults": set(),
        "check": set(), "gpu": set(), "mrc": {"base", "libraries"},
        "calls": {"elf", "trace", "faults", "check"}, "libraries": set(),
        "abi": {"elf", "base", "memory", "driver", "runtime", "cm", "netlink", "hooks", "libraries"}}
# Headers of abi/ that folders below it may include, and why.
SHIM_UPWARDS = {
    # The first look at one of our files is a program's first call, and asking for devices makes the verbs' objects.
    "verbs-shim/abi/devices.h": {"hooks", "cm"}}
# The rooms of hostnicd, from below, and which others each may include besides itself. "" are the files at the top: of
# those, the rooms up to start/ may include only what says something to all (DAEMON_FOR_ALL).
DAEMON = {"network": set(), "lcore": set(), "trust": set(), "ports": {"network", "lcore"},
          "ports/udp": {"network", "lcore", "ports"}, "start": {"lcore", "ports", "ports/udp"},
          "control": {"", "trust"}, "clients": {"", "lcore", "trust", "start", "control", "observe"},
          "rdma_cm": {"", "network", "lcore", "trust", "ports/udp", "control"},
          "control/commands": {"", "control", "rdma_cm", "observe"},
          "observe": {"", "control", "lcore", "network"},
          "server": {"", "trust", "start", "control", "control/commands", "clients", "rdma_cm", "observe"}}
DAEMON_FOR_ALL = {"log.h", "plan.h"}
# Worlds of both halves, which nothing else of dataplane/ knows.
SIMULATION = "dataplane/simulation/"
# Who may include what, of the folders at the top.
TOPS = {"protocol": {"protocol"}, "config": {"protocol", "config"}, "verbs-shim": {"protocol", "verbs-shim"},
        "dataplane": {"protocol", "config", "dataplane"}}
QP_AND_RECEIVES = {f"verbs-shim/driver/{name}.h" for name in ("qp", "driver_core", "srq", "cq")}
NAMES_TRANSPORT = re.compile(r"transport/(?:hostnic|roce|unreliable)/|\b(?:hostnic|roce|unreliable)_?(?:\.|->)")
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


def wrong_in_daemon():
    for path, included in includes("dataplane/daemon"):
        if not included.startswith("dataplane/daemon/"):
            continue
        own, other = (p.removeprefix("dataplane/daemon/").rpartition("/")[0] for p in (path, included))
        name = included.rpartition("/")[2]
        if own in ("", "pch", other) or other in DAEMON[own] or other == "" and name in DAEMON_FOR_ALL:
            continue
        yield f"{path} includes {included}: {own}/ may use {', '.join(sorted(DAEMON[own] - {''})) or 'nothing'}"


def wrong_in_core():
    """What dispatches in the NIC names no transport: transports.h does, for all of them."""
    for path in sorted((TOP / "dataplane/nic").glob("*.*")):
        name = path.relative_to(TOP).as_posix()
        if path.name == "transports.h":
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if NAMES_TRANSPORT.search(line):
                yield f"{name}:{number} names a transport: only transports.h may"


def wrong_in_shim():
    for path, included in includes("verbs-shim"):
        own, other = path.split("/")[1], included.split("/")[1]
        if not included.startswith("verbs-shim/") or other == own or other in SHIM[own]:
            continue
        if own not in SHIM_UPWARDS.get(included, set()):
            yield f"{path} includes {included}: {own}/ may use {', '.join(sorted(SHIM[own])) or 'nothing'}"


def wrong_at_the_top():
    for folder, allowed in TOPS.items():
        for path, included in includes(folder):
            top = included.partition("/")[0]
            if path.startswith(SIMULATION) and included.startswith("verbs-shim/driver/"):
                continue
            if included.startswith(SIMULATION) and not path.startswith(SIMULATION):
                yield f"{path} includes {included}: worlds are for simulate, tests/ and bench/"
            if top in (*TOPS, "tests", "bench") and top not in allowed:
                yield f"{path} includes {included}: {folder}/ may use {', '.join(sorted(allowed))}"


def wrong_in_driver():
    """Requesters are handed the send queue, and know nothing of what owns them or of receives."""
    for path, included in includes("verbs-shim/driver/requester"):
        if included in QP_AND_RECEIVES:
            yield f"{path} includes {included}: a requester sees its send queue only"


def check_layers():
    """Whether none is wrong."""
    rules = (wrong_in_nic, wrong_in_core, wrong_in_daemon, wrong_in_driver, wrong_in_shim, wrong_at_the_top)
    wrong = [line for rule in rules for line in rule()]
    for line in wrong:
        print(f"FAIL layers: {line}")
    if not wrong:
        print("ok   layers of dataplane/nic, of hostnicd, of verbs-shim and of the repository")
    return not wrong


if __name__ == "__main__":
    sys.exit(0 if check_layers() else 1)
