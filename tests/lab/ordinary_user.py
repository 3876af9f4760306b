# SPDX-License-Identifier: BSD-3-Clause
"""Runs commands as a user without any privilege, from a directory of its own.
Root becomes nobody; everybody else is an ordinary user as he is."""

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

SETPRIV = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups", "--inh-caps=-all",
           "--bounding-set=-all", "--no-new-privs", "--"]


def reason_against():
    """None, or why nobody can't be had here."""
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        return "setpriv is not installed (util-linux)"
    return None


def python():
    """An interpreter that everybody may run: that of root's own environment may lie in root's home."""
    return "/usr/bin/python3" if os.geteuid() == 0 else sys.executable


def prefix():
    return SETPRIV if os.geteuid() == 0 else []


def copy(files):
    """A new directory that belongs to the ordinary user, with {name in it: file}; removed at exit."""
    home = Path(tempfile.mkdtemp(prefix="hostnic-nobody-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for name, source in files.items():
        target = home / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    give_away(home)
    return home


def give_away(home):
    for path in [home, *home.rglob("*")]:
        if os.geteuid() == 0:
            shutil.chown(path, "nobody", "nogroup")
        path.chmod(0o755)


def environment(home):
    return {"HOME": str(home), "TMPDIR": str(home), "XDG_RUNTIME_DIR": str(home)}
