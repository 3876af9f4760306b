# SPDX-License-Identifier: BSD-3-Clause
"""hostnicd under a service manager."""

import sys

from harness import HERE, Case


def told(output):
    for line in ("is served, and hostnicd killed", "is served by the next", "leaves the socket",
                 "no listening UNIX socket of type SOCK_SEQPACKET"):
        if line not in output:
            return f"the output does not say '{line}'"
    return None


def service_cases(maker):
    program = [maker.build / "hostnic", "run", "--", maker.apps / "tests/apps/hostnic-verify", "--both", "--device", "hnic0",
               "--peer-device", "hnic1", "--seed", maker.seed, "--rounds", "2", "--max-bytes", "64k"]
    yield Case("a service manager has the socket", [
        sys.executable, HERE / "service_manager.py", maker.build / "hostnicd", *program], 60, True, told)
