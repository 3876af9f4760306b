# SPDX-License-Identifier: BSD-3-Clause
"""The wheel's Python: starts the programs of the bundle that lies beside this file."""

import os
import sys

BUNDLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bundle")


def become(name):
    """Becomes a program of the bundle, with this process's arguments; ends with a line where it can't."""
    program = os.path.join(BUNDLE, "bin", name)
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: {program}: {error.strerror}")


def hostnic():
    become("hostnic")


def hostnicd():
    become("hostnicd")
