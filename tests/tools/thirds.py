# SPDX-License-Identifier: BSD-3-Clause
"""Which third of the long tests a commit runs. Three runs, one of each third, run all of them."""

import hashlib
import subprocess

COUNT = 3
THIRDS = range(1, COUNT + 1)
# Whose the items of a list are, in turns. The first third has whole parts that take longest (run_tests.py), and so
# fewer items.
TURNS = (2, 3, 1, 2, 3)
# Of a tree that no repository is around: an archive's.
SOURCES = ["protocol", "dataplane", "verbs-shim", "config", "tests"]
SUFFIXES = {".c", ".cc", ".h", ".py"}


def of_commit(commit):
    """The third of a commit, by its hash in hexadecimal digits."""
    return int(commit, 16) % COUNT + 1


def commit_of(top):
    """The hash of what is checked out in `top`, or None: no git, no repository there, or nothing committed. History is
    not looked at, so that a shallow clone has the same answer, and it does not matter whose the directory is."""
    # Of a repository further up this would be another project's commit.
    if not (top / ".git").exists():
        return None
    try:
        said = subprocess.run(["git", "-c", "safe.directory=*", "-C", str(top), "rev-parse", "--verify", "HEAD"],
                              capture_output=True, text=True, check=False)
    except OSError:
        return None
    return said.stdout.strip() if said.returncode == 0 else None


def digest_of(top):
    """In a commit's place where there is none: of what the sources say, the same for the same sources."""
    digest = hashlib.sha256()
    for path in sorted(path for folder in SOURCES for path in (top / folder).rglob("*") if path.suffix in SUFFIXES):
        if path.is_file():
            digest.update(f"{path.relative_to(top)}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def of_tree(top):
    """(third, the commit or digest that chose it)."""
    chosen_by = commit_of(top) or digest_of(top)
    return of_commit(chosen_by), chosen_by


def dealt(items, third):
    """Those of the items that belong to a third (None: all). What is beside each other goes into different ones."""
    return [item for number, item in enumerate(items) if third in (None, TURNS[number % len(TURNS)])]


def add_option(parser):
    """For a runner that deals its long cases out."""
    parser.add_argument("--third", type=int, choices=THIRDS, help="of the cases that are not quick, this third")
