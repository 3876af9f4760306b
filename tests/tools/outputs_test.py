#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of outputs.py and of what the demo and the runners make of it. Nothing is measured."""

import math
import sys
import unittest
from pathlib import Path

import demo
import outputs

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from harness import perftest_rows as check_of_rows  # noqa: E402

BANDWIDTH = """
 local address: LID 0x02 QPN 0x10010 PSN 0x8ecf09 RKey 0x0019c6 VAddr 0x007f0fc3848000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:127:77:00:01
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      1000             {peak}            {average}            {rate}
---------------------------------------------------------------------------------------
"""
LATENCY = """
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]
 2       1000          {least}           2477.92      {typical}     \t   9.33    \t{deviation}  \t54.52  \t61.81
"""
PINGPONG = """  local address:  LID 0x0001, QPN 0x010000, PSN 0x7a0b31, GID ::ffff:127.77.0.2
8192000 bytes in {seconds} seconds = {rate} Mbit/sec
1000 iters in {seconds} seconds = {trip} usec/iter
"""


class Numbers(unittest.TestCase):
    def test_what_printf_writes_is_a_number(self):
        for text in ("0", "12", "0.00", "-0.00", "6.86", "1e-05", "1.5E+10", "+3", ".5", "5."):
            self.assertEqual(outputs.number(text), float(text), text)
        for text in ("nan", "-nan", "NAN", "-NaN"):
            self.assertTrue(math.isnan(outputs.number(text)), text)
        for text in ("inf", "INF", "infinity"):
            self.assertEqual(outputs.number(text), math.inf, text)
        self.assertEqual(outputs.number("-inf"), -math.inf)

    def test_other_words_are_none(self):
        for text in ("", "-", ".", "1.2.3", "0x10", "1,000", "12us", "nano", "info", "127.77.0.1", "1e", "--1"):
            self.assertIsNone(outputs.number(text), text)

    def test_figures_are_finite_and_not_negative(self):
        self.assertEqual([outputs.is_figure(value) for value in (0.0, 1.5, -1.0, math.inf, math.nan)],
                         [True, True, False, False, False])


class Tables(unittest.TestCase):
    def test_only_rows_of_results(self):
        output = BANDWIDTH.format(peak="635.1", average="600.25", rate="1.1")
        self.assertEqual(outputs.perftest_rows(output), [[65536, 1000, 635.1, 600.25, 1.1]])
        for line in ("", "1 2 3", "1 2 3 word", "0.5 1000 1 1 1", "-2 1000 1 1 1", "nan 1000 1 1 1", "8 0 1 1 1"):
            self.assertEqual(outputs.perftest_rows(line), [], line)

    def test_columns_are_asked_for(self):
        output = LATENCY.format(least="3.72", typical="6.86", deviation="-nan")
        self.assertEqual(len(outputs.perftest_rows(output, outputs.LATENCY_COLUMNS)), 1)
        self.assertEqual(outputs.perftest_rows(output, outputs.BANDWIDTH_COLUMNS), [])

    def test_runners_count_rows_whatever_the_figures(self):
        for deviation in ("0.00", "nan", "-nan", "inf", "1e+09"):
            output = LATENCY.format(least="3.72", typical="6.86", deviation=deviation)
            self.assertIsNone(check_of_rows(1)("--- client\n" + output), deviation)
        self.assertIn("0 lines", check_of_rows(1)("--- client\nnothing\n"))
        self.assertIn("negative", check_of_rows(1)("--- client\n" + LATENCY.format(least="3", typical="-6.8", deviation="1")))


class Demo(unittest.TestCase):
    def test_results(self):
        self.assertEqual(demo.bandwidth(BANDWIDTH.format(peak="635.1", average="600.25", rate="1.1")),
                         (65536, "600.25 Gb/s"))
        self.assertEqual(demo.latency(LATENCY.format(least="3.72", typical="6.86", deviation="42.36")), (2, "6.86 us"))
        self.assertEqual(demo.pingpong(PINGPONG.format(seconds="0.01", rate="9383.73", trip="6.98")),
                         (4096, "6.98 us, both ways"))

    def test_figures_that_it_does_not_show_may_be_anything(self):
        for word in ("-nan", "nan", "inf", "-inf", "1e+30"):
            self.assertEqual(demo.latency(LATENCY.format(least=word, typical="6.86", deviation=word)), (2, "6.86 us"))
            self.assertEqual(demo.bandwidth(BANDWIDTH.format(peak=word, average="600.25", rate=word)),
                             (65536, "600.25 Gb/s"))
            self.assertEqual(demo.pingpong(PINGPONG.format(seconds="0.00", rate=word, trip="6.98")),
                             (4096, "6.98 us, both ways"))

    def test_a_figure_that_was_not_measured_is_called_so(self):
        for word in ("-nan", "inf", "-1.00"):
            shown = f"no figure ({float(word):.2f})"
            self.assertEqual(demo.latency(LATENCY.format(least="1", typical=word, deviation="1")), (2, shown))
            self.assertEqual(demo.bandwidth(BANDWIDTH.format(peak="1", average=word, rate="1")), (65536, shown))
            self.assertEqual(demo.pingpong(PINGPONG.format(seconds="0.00", rate="1", trip=word)), (4096, shown))

    def test_no_result(self):
        for read in (demo.bandwidth, demo.latency, demo.pingpong):
            for output in ("", "Failed to modify QP\n", "Completion with error at client\n"):
                self.assertIsNone(read(output))
        self.assertIsNone(demo.latency(BANDWIDTH.format(peak="1", average="1", rate="1")))


class Tail(unittest.TestCase):
    def test_names_the_tests_that_failed(self):
        failed = ["a_test.cc:5: Failure", "[  FAILED  ] A.B (3 ms)"]
        rest = [f"line {i}" for i in range(60)]
        self.assertEqual(outputs.tail("\n".join(["[ RUN      ] A.B", *failed, *rest]), 40), failed + rest[-40:])

    def test_says_nothing_twice(self):
        self.assertEqual(outputs.tail("[  FAILED  ] A.B\nend\n", 40), ["[  FAILED  ] A.B", "end"])


if __name__ == "__main__":
    unittest.main()
