#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of ./run's arguments, in a directory that holds nothing but the script, and with hardly a program to call: what
is done although it was not asked for would be seen, and can't do harm."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
ALONE = ["setup", "build", "package", "bundle", "format", "clean"]
WITH_OPTIONS = ["demo", "test", "bench", "soak", "interop", "pmd", "arm64", "lint"]
# What it needs to say something.
CALLED = ["bash", "awk", "cat", "dirname", "readlink", "python3", "env", "rm"]


class Arguments(unittest.TestCase):
    def setUp(self):
        self.top = Path(tempfile.mkdtemp(prefix="hostnic-run-"))
        self.addCleanup(shutil.rmtree, self.top)
        shutil.copy(TOP / "run", self.top)
        (self.top / "bin").mkdir()
        for name in CALLED:
            (self.top / "bin" / name).symlink_to(shutil.which(name))
        # What `clean` would remove.
        (self.top / "build" / "meson-private").mkdir(parents=True)

    def run_with(self, *arguments, top=None):
        done = subprocess.run([str((top or self.top) / "run"), *arguments], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, env={**os.environ, "PATH": str(self.top / "bin")}, timeout=60,
                              check=False)
        return done.returncode, done.stdout, done.stderr

    def test_help_of_commands_without_arguments_does_nothing_else(self):
        for command in ALONE:
            for word in ("--help", "-h"):
                status, said, wrong = self.run_with(command, word)
                self.assertEqual((status, wrong), (0, ""), command)
                self.assertTrue(said.startswith(f"usage: ./run {command}\n\n  {command} "), said)
                self.assertNotIn("==", said)
                # Of that command alone.
                self.assertEqual([other for other in ALONE if f"\n  {other} " in said], [command])
        self.assertTrue((self.top / "build").exists())

    def test_unknown_arguments_are_refused(self):
        for command in ALONE:
            status, said, wrong = self.run_with(command, "--foo", "bar")
            self.assertEqual((status, said), (2, ""), command)
            self.assertEqual(wrong, f"./run {command} takes no arguments, and was given: --foo bar\n")
        self.assertTrue((self.top / "build").exists())

    def test_clean_cleans(self):
        self.assertEqual(self.run_with("clean")[0], 0)
        self.assertFalse((self.top / "build").exists())

    def test_help_of_the_others_comes_before_any_build(self):
        for command in WITH_OPTIONS:
            status, said, wrong = self.run_with(command, "--help", top=TOP)
            self.assertEqual(status, 0, f"{command}: {wrong}")
            self.assertIn("usage:", said)
            self.assertNotIn("== Packages", said)

    def test_unknown_commands_are_refused(self):
        status, said, wrong = self.run_with("bulid")
        self.assertEqual((status, said), (2, ""))
        self.assertIn('no command "bulid"', wrong)

    def test_all_commands_are_in_the_help(self):
        said = self.run_with("help")[1]
        for command in ALONE + WITH_OPTIONS:
            self.assertIn(f"\n  {command} ", said)


if __name__ == "__main__":
    unittest.main()
