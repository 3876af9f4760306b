# SPDX-License-Identifier: BSD-3-Clause
"""docs/ci.md and packaging/ci: each set-up, and places like containers (ci_checks.py)."""

import importlib.util
import platform
import shutil
import sys

import ordinary_user
from command_cases import output_has
from harness import HERE, Case
from page_cases import STOCK, missing

CHECKS = HERE / "ci_checks.py"
SECCOMP, NO_NAMESPACES, SHM, NO_SYSCTL = ("--docker-seccomp",), ("--no-user-namespaces",), ("--shm-megabytes", "64"), ("--no-proc-sys",)
PLACES = {
    "Docker's seccomp profile": SECCOMP,
    "no user namespaces": NO_NAMESPACES,
    "64 MB of /dev/shm": SHM,
    "no /proc/sys": NO_SYSCTL,
    "all of them, and two CPUs": (*SECCOMP, *SHM, *NO_SYSCTL, "--cpus", "2"),
}


def without_yaml():
    return None if importlib.util.find_spec("yaml") else "python3-yaml is not installed"


def without_pip():
    return None if shutil.which("pip3") and importlib.util.find_spec("ensurepip") else "python3-venv is not installed"


def ci_cases(maker):
    def case(name, what, *options, limit_s=120, skip=None):
        skip = skip or missing(STOCK) or ordinary_user.reason_against()
        return Case(f"ci: {name}", [sys.executable, CHECKS, what, maker.build, *options], limit_s, False,
                    output_has(rf"ci: {what} is fine"), skip=skip)

    foreign = None if platform.machine() == "x86_64" else "the bundle is for x86-64"
    yield Case("ci: the files can be read, and require RDMA", [sys.executable, CHECKS, "files", maker.build], 30, False,
               output_has("ci: files is fine"), skip=without_yaml())
    yield case("commands of docs/ci.md", "page", skip=foreign)
    yield case("the action's steps", "action", skip=foreign or without_yaml())
    yield case("GitLab's script", "gitlab", skip=foreign or without_yaml())
    for name, options in PLACES.items():
        yield case(f"the five lines, {name}", "place", *options, skip=foreign)
    for name, options in (("Docker's seccomp profile", SECCOMP), ("no user namespaces", NO_NAMESPACES)):
        yield case(f"hosts are refused in one line, {name}", "hosts", *options, skip=foreign)
    yield case("the wheel, by pip without a network", "wheel", limit_s=240, skip=foreign or without_pip())
