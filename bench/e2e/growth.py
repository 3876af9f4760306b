# SPDX-License-Identifier: BSD-3-Clause
"""What grows with the number of objects, and what hostnic costs before and without work."""

import time

from e2e import parsers
from e2e.daemon import Daemon, Holder, cpu_ns, resident
from e2e.figures import Sheet, job
from e2e.lab import Lab
from e2e.programs import need

QP_COUNTS = [1000, 4000, 16_000]
QUICK_QP_COUNTS = [4000]
MR_COUNTS = [1000, 4000, 16_000]
ENDS = 2  # every object exists on both NICs
REGISTRATION_MIB = [1, 16, 256]
QUICK_REGISTRATION_MIB = [16]
IDLE_SECONDS = 5.0
QUICK_IDLE_SECONDS = 1.0
IDLE_QPS = 1000
# Until everybody sleeps.
SETTLE_SECONDS = 0.5


def memory(bench, qps, regions):
    """Bytes in hostnicd, in the program (the shim's), in the segment that they share."""
    with Daemon(bench.build) as daemon, Holder(daemon, qps, regions) as holder:
        nic, _ = resident(daemon.process.pid)
        shim, segment = resident(holder.pid)
        return nic, shim, segment


def per_object(bench, qps, regions):
    """What one object takes: the slope from none to that many."""
    none, some = memory(bench, 0, 0), memory(bench, qps, regions)
    count = (qps + regions) * ENDS
    return tuple((after - before) / count for before, after in zip(none, some))


def run_memory(bench, name, counts, arguments):
    sheet = Sheet(f"memory-{name}", f"memory per {name.upper()}, bytes: what main memory holds beyond "
                  f"a program without any, by number on each of two NICs", f"{name.upper()}s",
                  "bytes")
    for count in counts:
        sheet.take_turns(count, [job(("hostnicd", "program (shim)", "segment"),
                                     lambda count=count: per_object(bench, *arguments(count)))],
                         bench.repetitions)
    return sheet


def start_up(bench):
    """Milliseconds until hostnicd is ready, and from a verbs program's exec to two open devices."""
    with Daemon(bench.build) as daemon, Holder(daemon, 0, 0) as holder:
        return daemon.start_s * 1e3, holder.start_s * 1e3


def run_start(bench):
    sheet = Sheet("start", "start-up", "", "ms")
    sheet.take_turns("start", [job(("hostnicd ready", "program with two devices open"),
                                   lambda: start_up(bench))], bench.repetitions)
    return sheet


def register(bench, mebibytes, way):
    """Microseconds per MiB: to register, to deregister, to copy."""
    output = Lab(bench.build).run(need(bench.build / "bench/e2e/hostnic-pairs"), "register",
                                  mebibytes, environment={"HOSTNIC_MEMORY": way})
    return tuple(us / mebibytes for us in parsers.named(output, "registration_us"))


def run_registration(bench):
    sheet = Sheet("registration", "registration of private, written memory, us per MiB, beside memcpy",
                  "MiB", "us")
    series = {"window": ("register (migrates)", "deregister (migrates)", "memcpy"),
              "memfd": ("register (mem fd)", "deregister (mem fd)", "memcpy, mem fd run")}
    for each in (*series["window"][:2], *series["memfd"][:2]):
        sheet.compare(each, "memcpy")
    for mebibytes in QUICK_REGISTRATION_MIB if bench.quick else REGISTRATION_MIB:
        sheet.take_turns(mebibytes, [
            job(names, lambda way=way, mebibytes=mebibytes: register(bench, mebibytes, way))
            for way, names in series.items()], bench.repetitions)
    return sheet


def idle(bench, qps, seconds):
    """Milliseconds of CPU per second, of hostnicd and of the program."""
    with Daemon(bench.build) as daemon, Holder(daemon, qps, 0) as holder:
        time.sleep(SETTLE_SECONDS)
        pids = (daemon.process.pid, holder.pid)
        before, start = [cpu_ns(pid) for pid in pids], time.monotonic()
        time.sleep(seconds)
        elapsed = time.monotonic() - start
        return tuple((cpu_ns(pid) - used) / 1e6 / elapsed for pid, used in zip(pids, before))


def run_idle(bench):
    sheet = Sheet("idle", "CPU use without work, ms per second of all threads, adaptive lcore",
                  "QPs", "ms")
    seconds = QUICK_IDLE_SECONDS if bench.quick else IDLE_SECONDS
    for qps in (IDLE_QPS,) if bench.quick else (0, IDLE_QPS):
        sheet.take_turns(qps, [job(("hostnicd", "program (shim)"),
                                   lambda qps=qps: idle(bench, qps, seconds))],
                         bench.repetitions)
    return sheet


def run(bench):
    quick = bench.quick
    sheets = [run_memory(bench, "qp", QUICK_QP_COUNTS if quick else QP_COUNTS, lambda n: (n, 0))]
    if not quick:
        sheets.append(run_memory(bench, "mr", MR_COUNTS, lambda n: (0, n)))
    return [*sheets, run_start(bench), run_registration(bench), run_idle(bench)]
