# SPDX-License-Identifier: BSD-3-Clause
"""Stock programs whose queue pairs share a receive queue."""

# Program, variant, options, lines of results (0: a pingpong), in the quick run, under loss as well.
SHARED_RECEIVE = [
    ("ibv_srq_pingpong", "plain", [], 0, True, True),
    ("ibv_srq_pingpong", "MTU 4096", ["-m", "4096"], 0, False, True),
    ("ibv_srq_pingpong", "events", ["-e"], 0, True, True),
    ("ibv_srq_pingpong", "1 byte", ["-s", "1"], 0, False, True),
    ("ibv_srq_pingpong", "odd size, events", ["-s", "12345", "-e"], 0, False, True),
    ("ibv_srq_pingpong", "64 KiB, 3 QPs", ["-s", "65536", "-q", "3"], 0, False, True),
    ("ibv_srq_pingpong", "short queue", ["-r", "20", "-q", "4"], 0, False, True),
    ("ib_send_bw", "SRQ, 4 QPs", ["--use-srq", "-q", "4", "-n", "200"], 1, True, True),
    ("ib_send_bw", "SRQ, all sizes", ["--use-srq", "-a", "-n", "50"], 23, False, False),
    ("ib_send_bw", "SRQ, 4 QPs, bidirectional", ["--use-srq", "-q", "4", "-b", "-n", "200"], 1, False, True),
    ("ib_send_bw", "SRQ, 4 QPs, events", ["--use-srq", "-q", "4", "-e", "-n", "200"], 1, False, True),
    ("ib_send_lat", "SRQ", ["--use-srq", "-n", "500"], 1, True, True),
    ("ib_send_bw", "SRQ, UD", ["--use-srq", "-c", "UD", "-n", "500", "-r", "512"], 1, False, False),
]
