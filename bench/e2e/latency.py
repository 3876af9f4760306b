# SPDX-License-Identifier: BSD-3-Clause
"""Latency of perftest between two NICs of a lab, beside UCX and libfabric over TCP."""

from e2e import parsers, peers
from e2e.figures import Sheet, job, show_size
from e2e.lab import Lab
from e2e.programs import need

PROGRAMS = ["ib_write_lat", "ib_send_lat", "ib_read_lat", "ib_atomic_lat"]
SIZES = [8, 256, 4096, 65536, 1 << 20]
QUICK_SIZES = [8]
ATOMIC_BYTES = 8
UCX = "ucx tag_lat, TCP"
UCX_SHARED = "ucx tag_lat, shared memory"
PINGPONG_SECONDS = 0.5


def count_of(size):
    return max(min(20_000, (512 << 20) // size), 200)


def programs_at(size):
    return [program for program in PROGRAMS if program != "ib_atomic_lat" or size == ATOMIC_BYTES]


def perftest_job(bench, program, size, name, options):
    return job((program + name, f"{program}{name} p99"), lambda:
               Lab(bench.build, options).latency(program, size, count_of(size)))


def run_adaptive(bench):
    """Two programs that spin and the lcore share the cores."""
    sheet = Sheet("latency", "latency in us, median and p99: half a round trip (READ and atomics: "
                  "all of it); adaptive lcore", "message", "us", show_size)
    for program in ("ib_write_lat", "ib_send_lat"):
        sheet.compare(program, UCX)
    for size in bench.sizes(SIZES, QUICK_SIZES):
        count = count_of(size)
        jobs = [perftest_job(bench, program, size, "", []) for program in programs_at(size)]
        jobs.append(job((UCX, f"{UCX} p99"), lambda size=size, count=count:
                        peers.ucx_latency(size, peers.UCX_TCP, count)))
        if not bench.quick:
            jobs += [job((UCX_SHARED, f"{UCX_SHARED} p99"), lambda size=size, count=count:
                         peers.ucx_latency(size, peers.UCX_SHARED, count)),
                     job("fi_pingpong, tcp", lambda size=size, count=count:
                         peers.libfabric(size, "tcp", "msg", count)[1])]
        sheet.take_turns(size, jobs, bench.repetitions)
    return sheet


def own_core(bench, mode):
    """The lcore polls on one core; both ends of a ping-pong, of which only one has something to do at
    a time, are one thread on the other."""
    first, second = bench.cpus[:2]
    lab = Lab(bench.build, ["--idle", "poll", "--lcores", f"{first},"])
    output = lab.run("taskset", "-c", second, need(bench.build / "bench/e2e/hostnic-pairs"), mode,
                     PINGPONG_SECONDS, ATOMIC_BYTES)
    return parsers.pairs_latency(output)


def passive_server(bench, program):
    """READs and atomics need no thread of the server: the client has the other core."""
    first, second = bench.cpus[:2]
    lab = Lab(bench.build, ["--idle", "poll", "--lcores", f"{first},"])
    return lab.latency(program, ATOMIC_BYTES, count_of(ATOMIC_BYTES),
                       server_prefix=("taskset", "-c", second),
                       client_prefix=("taskset", "-c", second))


def run_poll(bench):
    sheet = Sheet("latency-poll", "latency in us, median and p99; the lcore polls on a core of its "
                  "own, the programs share the other", "message", "us", show_size)
    if len(bench.cpus) < 2:
        sheet.skip(sheet.name, "needs two cores")
        return sheet
    jobs = [job((f"{name} ping-pong, one thread", f"{name} ping-pong, one thread p99"),
                lambda mode=mode: own_core(bench, mode))
            for name, mode in (("WRITE", "write-latency"), ("SEND", "send-latency"))]
    if not bench.quick:
        jobs += [job((program, f"{program} p99"), lambda program=program:
                     passive_server(bench, program))
                 for program in ("ib_read_lat", "ib_atomic_lat")]
    sheet.take_turns(ATOMIC_BYTES, jobs, bench.repetitions)
    return sheet


def run(bench):
    return [run_adaptive(bench), run_poll(bench)]
