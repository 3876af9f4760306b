# SPDX-License-Identifier: BSD-3-Clause
"""Stock programs on UC and UD queue pairs, on networks that lose nothing: these services don't
repeat, so a lost message ends such a program. Receives are posted ahead for all iterations, for
without one a message is lost, too."""

# ::ffff:239.1.2.3, as perftest reads it.
MULTICAST_GID = "0:0:0:0:0:0:0:0:0:0:255:255:239:1:2:3"

# Program, variant, options, lines of results (0: a pingpong), in the quick run.
UNRELIABLE = [
    ("ibv_uc_pingpong", "plain", [], 0, True),
    ("ibv_uc_pingpong", "MTU 4096", ["-m", "4096"], 0, False),
    ("ibv_uc_pingpong", "events", ["-e"], 0, False),
    ("ibv_uc_pingpong", "1 MiB", ["-s", "1048576", "-n", "200"], 0, False),
    ("ibv_ud_pingpong", "plain", ["-s", "2048"], 0, True),
    ("ibv_ud_pingpong", "1024 bytes", ["-s", "1024"], 0, False),
    ("ibv_ud_pingpong", "events", ["-e", "-s", "2048"], 0, False),
    ("ib_send_bw", "UC", ["-c", "UC", "-n", "500", "-r", "512"], 1, False),
    ("ib_write_bw", "UC", ["-c", "UC", "-n", "1000"], 1, False),
    ("ib_write_bw", "UC, 8 QPs", ["-c", "UC", "-n", "200", "-q", "8"], 1, False),
    ("ib_write_lat", "UC", ["-c", "UC", "-n", "100"], 1, False),
    ("ib_send_lat", "UC", ["-c", "UC", "-n", "100"], 1, False),
    ("ib_send_bw", "UD", ["-c", "UD", "-n", "500", "-r", "512"], 1, False),
    ("ib_send_bw", "UD, old post calls", ["-c", "UD", "-n", "500", "-r", "512", "--use_old_post_send"], 1,
     False),
    ("ib_send_lat", "UD", ["-c", "UD", "-n", "100"], 1, False),
    ("ib_send_lat", "UD, events", ["-c", "UD", "-n", "100", "-e"], 1, False),
    # One way perftest wants GIDs of the same kind on both sides: an IPv4 group, as the client's own is.
    ("ib_send_bw", "UD multicast", ["-c", "UD", "-g", "-M", MULTICAST_GID, "-n", "500", "-r", "512"], 1, True),
    ("ib_send_lat", "UD multicast", ["-c", "UD", "-g", "-n", "100"], 1, False),
]
