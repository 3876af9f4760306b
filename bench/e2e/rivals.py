# SPDX-License-Identifier: BSD-3-Clause
"""Bandwidth beside what else moves messages on one machine: UCX, libfabric, iperf3."""

from e2e import peers
from e2e.bandwidth import MEMCPY_SECONDS
from e2e.figures import Sheet, job, show_size
from e2e.lab import Lab, memcpy

SIZES = [1, 8, 64, 512, 4096, 32768, 65536, 262144, 1 << 20, 8 << 20]
QUICK_SIZES = [64, 1 << 20]
UCX_TCP = "ucx tag_bw, TCP"
UCX_SHARED = "ucx tag_bw, shared memory"
IPERF = "iperf3"
PINGPONG = "fi_pingpong, tcp"
# iperf3 writes a stream: below, it measures system calls.
IPERF_SIZES = [4096, 65536, 1 << 20]
OURS = ["ib_send_bw", "ib_write_bw"]


def jobs_at(bench, size, scale):
    jobs = [job("memcpy", lambda: memcpy(bench.build, size, MEMCPY_SECONDS))]
    # perftest's smallest message is of 1 byte, too.
    jobs += [job(program, lambda program=program:
                 Lab(bench.build).bandwidth(program, size, scale=scale)) for program in OURS]
    jobs.append(job(UCX_TCP, lambda: peers.ucx_bandwidth(size, peers.UCX_TCP, scale)))
    if size in IPERF_SIZES:
        jobs.append(job(IPERF, lambda: peers.iperf3(size)))
    if not bench.quick:
        jobs.append(job(UCX_SHARED, lambda: peers.ucx_bandwidth(size, peers.UCX_SHARED, scale)))
        count = max(min(20_000, (512 << 20) // size), 50)
        jobs.append(job(PINGPONG, lambda: peers.libfabric(size, "tcp", "msg", count)[0]))
    return jobs


def run(bench):
    sheet = Sheet("peers", "bandwidth beside UCX, libfabric (a ping-pong: one message at a time) and "
                  "iperf3, in the same run", "message", "B/s", show_size)
    print(f"   {peers.versions()}", flush=True)
    sheet.bounded_by("memcpy")
    for ours in OURS:
        sheet.compare(ours, UCX_TCP)
    sheet.compare("ib_send_bw", UCX_SHARED)
    sheet.compare("ib_write_bw", IPERF)
    scale = 0.5 if bench.quick else 1.0
    for size in bench.sizes(SIZES, QUICK_SIZES):
        sheet.take_turns(size, jobs_at(bench, size, scale), bench.repetitions)
    return [sheet]
