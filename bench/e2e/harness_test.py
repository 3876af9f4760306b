#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of what turns the programs' outputs into figures. Nothing is measured."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from e2e import parsers  # noqa: E402
from e2e.figures import Figure, Sheet, job, show_size  # noqa: E402
from e2e.programs import Unavailable  # noqa: E402

BANDWIDTH = """
 local address: LID 0x02 QPN 0x10010 PSN 0x8ecf09 RKey 0x0019c6 VAddr 0x007f0fc3848000
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 64         640000           0.00               2.00   \t\t   3.905304
 65536      20000            170.40             169.25 \t\t   0.322820
 2          1000             0.00               0.00   \t\t   0.150000
"""
LATENCY = """
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]
 8       20000          3.72           2477.92      6.86     \t   9.33    \t42.36  \t54.52  \t61.81
"""
UCX = """iterations,99.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
20000,7.106,5.694,5.694,1.34,1.34,175611,175611
"""
IPERF = 'warning\n{"end": {"sum_received": {"bits_per_second": 8e9}}}\n'
FI = """bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
64k     2k      =2k      250m        0.09s   3050.07      21.49       0.05
"""
TESTPMD = """
  RX-packets: 100        RX-missed: 0          RX-bytes:  109800
  Throughput (since last show)
  Rx-pps:           99          Rx-bps:       869616
  RX-packets: 77221      RX-missed: 0          RX-bytes:  84788658
  Rx-pps:        77202          Rx-bps:    685561752
  Rx-pps:         1000          Rx-bps:            0
"""


class Parsers(unittest.TestCase):
    def test_perftest_bandwidth(self):
        self.assertEqual(parsers.perftest_bandwidth(BANDWIDTH, 65536), (169.25e9 / 8, 322820))
        # Below 1 Gb/s the message rate has more digits.
        self.assertEqual(parsers.perftest_bandwidth(BANDWIDTH, 2), (300000, 150000))

    def test_perftest_latency(self):
        self.assertEqual(parsers.perftest_latency(LATENCY, 8), (6.86, 54.52))

    def test_figures_that_are_not_asked_for_may_be_anything(self):
        for word in ("-nan", "inf"):
            self.assertEqual(parsers.perftest_latency(LATENCY.replace("42.36", word), 8), (6.86, 54.52))
            self.assertEqual(parsers.perftest_bandwidth(BANDWIDTH.replace("170.40", word), 65536)[1], 322820)
            with self.assertRaises(parsers.NoResult):
                parsers.perftest_latency(LATENCY.replace("6.86", word), 8)

    def test_others(self):
        self.assertEqual(parsers.memcpy_rate("64 1000\n4096 5e9\n", 4096), 5e9)
        self.assertEqual(parsers.ucx_bandwidth(UCX, 8), 175611 * 8)
        self.assertEqual(parsers.ucx_latency(UCX), 7.106)
        self.assertEqual(parsers.iperf3(IPERF), 1e9)
        self.assertEqual(parsers.fi_pingpong(FI), (3050.07e6, 21.49))
        self.assertEqual(parsers.pairs_latency("latency_us 0.650 13.775\n"), (0.65, 13.775))
        self.assertEqual(parsers.pairs_bandwidth("bytes_per_second 12\n"), 12)
        self.assertEqual(parsers.testpmd_rate(TESTPMD, 1098), 77202)

    def test_nothing_found_is_an_error(self):
        for parse in (lambda text: parsers.perftest_bandwidth(text, 65536),
                      lambda text: parsers.perftest_latency(text, 8),
                      lambda text: parsers.memcpy_rate(text, 64), parsers.ucx, parsers.ucx_latency,
                      lambda text: parsers.ucx_bandwidth(text, 8), parsers.iperf3,
                      parsers.fi_pingpong, parsers.pairs_latency, parsers.pairs_bandwidth,
                      lambda text: parsers.testpmd_rate(text, 1098)):
            for text in ("", "Failed to modify QP\n", "iterations,a\nx\n", "{}", "latency_us ?\n",
                         "latency_us 0 0\n", " 8 1000 0.0 0.0 0.0\n"):
                with self.assertRaises(parsers.NoResult, msg=f"{parse} of {text!r}"):
                    parse(text)

    def test_another_size_is_not_taken(self):
        with self.assertRaises(parsers.NoResult):
            parsers.testpmd_rate(TESTPMD, 4170)
        with self.assertRaises(parsers.NoResult):
            parsers.perftest_bandwidth(BANDWIDTH, 4096)

    def test_zero_is_not_a_rate(self):
        with self.assertRaises(parsers.NoResult):
            parsers.perftest_bandwidth(" 64 1000 0.00 0.00 0.000000\n", 64)


class Sheets(unittest.TestCase):
    def setUp(self):
        self.sheet = Sheet("test", "a test", "message", "B/s", show_size)

    def fill(self, x, **series):
        for name, values in series.items():
            self.sheet.values[(x, name)] = list(values)

    def test_median_and_spread(self):
        figure = Figure.of([3, 1, 2, 5, 4])
        self.assertEqual((figure.median, figure.low, figure.high, figure.runs), (3, 1, 5, 5))

    def test_ratios_are_taken_turn_by_turn(self):
        self.fill(64, ours=[1, 20, 3], theirs=[2, 10, 3])
        ratio = self.sheet.ratio(64, "ours", "theirs", None)
        self.assertEqual((ratio.median, ratio.low, ratio.high), (1, 0.5, 2))

    def test_places_are_compared(self):
        self.fill(1, ours=[10, 20, 40])
        self.fill(100, ours=[5, 20, 10])
        self.assertEqual(self.sheet.ratio(100, "ours", "ours", 1).median, 0.5)

    def test_faster_than_memory_is_an_error(self):
        self.sheet.bounded_by("memcpy")
        self.fill(64, ours=[4, 11, 12], memcpy=[9, 10, 8])
        self.fill(4096, ours=[4, 10, 12], memcpy=[9, 10, 8])
        self.fill(65536, ours=[4, 10.4, 12], memcpy=[9, 10, 8])
        self.assertEqual(self.sheet.wrong(), [(64, "ours")])
        self.assertIn("MEASUREMENT ERROR", self.sheet.cell(64, "ours"))

    def test_what_fails_once_is_left_out(self):
        runs = []

        def fail():
            runs.append(1)
            if len(runs) > 1:
                raise Unavailable("no such program")
            return 1.0

        self.sheet.take_turns(64, [job("good", lambda: 2.0), job("bad", fail)], 3)
        self.assertEqual(self.sheet.values, {(64, "good"): [2.0, 2.0, 2.0]})
        self.assertEqual(len(runs), 2)

    def test_csv(self):
        self.fill(64, ours=[1, 2, 3], theirs=[2, 2, 2])
        self.sheet.compare("ours", "theirs")
        with tempfile.TemporaryDirectory() as directory:
            self.sheet.write(Path(directory))
            lines = (Path(directory) / "test.csv").read_text(encoding="utf-8").splitlines()
        self.assertEqual(lines[0], "# a test")
        self.assertEqual(lines[2:], ["x_name,x,series,unit,median,min,max,runs,error",
                                     "message,64,ours,B/s,2,1,3,3,0",
                                     "message,64,theirs,B/s,2,2,2,3,0",
                                     "message,64,ours / theirs,ratio,1,0.5,1.5,3,0"])


if __name__ == "__main__":
    unittest.main()
