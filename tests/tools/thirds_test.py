#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of thirds.py: every commit has a third, wherever its tree lies, and three thirds are everything."""

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import thirds


def git(directory, *words):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *identity, "-C", str(directory), *words], check=True, capture_output=True,
                          text=True).stdout.strip()


class Thirds(unittest.TestCase):
    def setUp(self):
        self.top = Path(tempfile.mkdtemp(prefix="hostnic-thirds-"))
        self.addCleanup(shutil.rmtree, self.top)

    def source(self, directory, text):
        (directory / "protocol").mkdir(parents=True, exist_ok=True)
        (directory / "protocol" / "a.cc").write_text(text)

    def test_the_hash_chooses_evenly(self):
        chosen = [thirds.of_commit(f"{number:040x}") for number in range(300)]
        self.assertEqual([chosen.count(third) for third in thirds.THIRDS], [100, 100, 100])

    def test_three_thirds_are_everything_once(self):
        for count in range(10):
            parts = [thirds.dealt(range(count), third) for third in thirds.THIRDS]
            self.assertEqual(sorted(item for part in parts for item in part), list(range(count)))
        self.assertEqual(thirds.dealt(range(7), None), list(range(7)))
        self.assertEqual(set(thirds.TURNS), set(thirds.THIRDS))

    def test_an_archive_is_chosen_by_its_sources(self):
        self.source(self.top / "one", "int a;")
        self.source(self.top / "two", "int a;")
        self.source(self.top / "three", "int b;")
        one, two, three = (thirds.of_tree(self.top / name) for name in ("one", "two", "three"))
        self.assertEqual(one, two)
        self.assertNotEqual(one[1], three[1])
        self.assertIn(one[0], thirds.THIRDS)

    @unittest.skipIf(shutil.which("git") is None, "git is not installed")
    def test_a_commit_chooses_also_in_a_shallow_clone_and_a_worktree(self):
        origin = self.top / "origin"
        self.source(origin, "int a;")
        git(self.top, "init", "-q", str(origin))
        self.assertIsNone(thirds.commit_of(origin))  # nothing is committed
        for text in ("int a;", "int b;"):
            self.source(origin, text)
            git(origin, "add", ".")
            git(origin, "commit", "-q", "-m", text)
        commit = git(origin, "rev-parse", "HEAD")
        git(self.top, "clone", "-q", "--depth", "1", f"file://{origin}", str(self.top / "shallow"))
        git(origin, "worktree", "add", "-q", str(self.top / "tree"), "--detach")
        for place in (origin, self.top / "shallow", self.top / "tree"):
            self.assertEqual(thirds.of_tree(place), (thirds.of_commit(commit), commit))

    @unittest.skipIf(shutil.which("git") is None, "git is not installed")
    def test_an_archive_below_another_repository_is_not_that_repository(self):
        git(self.top, "init", "-q", ".")
        self.source(self.top / "unpacked", "int a;")
        git(self.top, "add", ".")
        git(self.top, "commit", "-q", "-m", "another project")
        self.assertIsNone(thirds.commit_of(self.top / "unpacked"))


if __name__ == "__main__":
    unittest.main()
