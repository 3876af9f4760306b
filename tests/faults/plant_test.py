#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of plant.py: a change is made at the one place that it names, or says why it can't be."""

import tempfile
import unittest
from pathlib import Path

import plant

SOURCE = """// A file.
#include "own.h"

int one() { return 1; }
int two() { return 2; }
"""


class Plant(unittest.TestCase):
    def test_a_change_is_made_once_and_the_list_of_faults_included(self):
        self.assertEqual(plant.planted("a.cc", SOURCE, [("return 1;", "return broken(Fault::x) ? 2 : 1;")]),
                         SOURCE.replace("return 1;", "return broken(Fault::x) ? 2 : 1;")
                         .replace('"own.h"\n', '"own.h"\n' + plant.INCLUDE))

    def test_a_change_of_no_fault_needs_no_list(self):
        self.assertEqual(plant.planted("a.cc", SOURCE, [("int one", "int three")]), SOURCE.replace("one", "three"))

    def test_a_text_that_is_not_there_is_named(self):
        with self.assertRaisesRegex(plant.Wrong, r"a\.cc: 0 times, not once:\nreturn 3;"):
            plant.planted("a.cc", SOURCE, [("return 3;", "return 4;")])

    def test_a_text_that_is_there_twice_is_named(self):
        with self.assertRaisesRegex(plant.Wrong, r"2 times, not once:\nreturn"):
            plant.planted("a.cc", SOURCE, [("return", "throw")])

    def test_changes_do_not_overlap(self):
        with self.assertRaisesRegex(plant.Wrong, "overlap"):
            plant.planted("a.cc", SOURCE, [("one() { return 1;", "a"), ("return 1; }", "b")])

    def test_the_product_has_no_fault(self):
        product = ("protocol/", "dataplane/", "verbs-shim/", "config/")
        named = [name for name in plant.files_of()
                 if name.endswith((".cc", ".h")) and name.startswith(product)
                 and plant.NAMED.search((plant.TOP / name).read_text(encoding="utf-8").replace("KeyFault::", ""))]
        self.assertEqual(named, [])

    def test_a_copy_has_all_changes_and_what_is_gone_goes(self):
        with tempfile.TemporaryDirectory(prefix="hostnic-plant-") as folder:
            copy = Path(folder) / "copy"
            plant.plant(copy)
            for name, source in plant.check().items():
                self.assertEqual((copy / name).read_text(encoding="utf-8"), source)
            changed = next(iter(plant.changes()))
            before = (copy / changed).stat().st_mtime_ns
            (copy / "old.cc").write_text("int old;\n", encoding="utf-8")
            plant.plant(copy)
            self.assertFalse((copy / "old.cc").exists())
            self.assertEqual((copy / changed).stat().st_mtime_ns, before, "it would be built again")


if __name__ == "__main__":
    unittest.main()
