#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""hostnic over UDP sockets while the kernel itself loses packets: its netem drops one in a hundred
of what leaves either host, TCP included. It takes a kernel that has netem, which the machine's own need not
be: this boots the User-Mode Linux that the build.sh of HOSTNIC_RXE_SCRIPTS makes (in ~/.cache/hostnic-rxe,
or where HOSTNIC_RXE_PEER says), a process without privileges whose files are this machine's, read-only.
In it: perftest's main rows and hostnic-verify between two network namespaces, and the conformance suite.
Without that kernel all cases are skipped."""

import atexit
import fcntl
import os
import re
import signal
import struct
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / part) for part in ("lab", "interop", "support")]
from harness import (  # noqa: E402
    TAIL_LINES, Case, Ports, pair, parse, require_programs, run_case, run_cases, select, verify_is_ok)
from ground import SCRIPTS, peer_directory  # noqa: E402
from guest import Guest, be_first_process, set_up_tree  # noqa: E402
from run_hosts_tests import UDP, UDP6, VERIFY, Cable, CannotRun, ip, lossy_cases_over, run_over  # noqa: E402

LOSS_PERCENT = 1
CABLES = ((UDP, 1500), (UDP, 9000), (UDP6, 1500), (UDP6, 9000))
CONFORMANCE = Path("tests/conformance/conformance-test")
# The device's end ends hostnicd; the promised memory regions take long, and no packets; the guest's kernel has no
# userfaultfd, without which nobody hears of memory that a bare system call, or libc within free(), unmaps.
NOT_CONFORMANCE = ["DeviceFatal.*", "Limits.AllPromisedMemoryRegions", "GoneMemoryByMemFd.*",
                   "Ways/GoneMemory.WhatIsMappedNextIsLeftAlone/unmapped_by_system_call",
                   "Ways/GoneMemory.WhatIsMappedNextIsLeftAlone/freed"]
# They are about path MTU 4096.
NOT_AT_MTU_1500 = ["Devices.ThePort", "Conformance.MessagesThatAreOnePacketForBothEndsArrive",
                   "Operations/UnequalPathMtus.*"]
# Linux's loopback interface hands on no IPv6 multicast.
NOT_OVER_IPV6 = ["Groups.*"]
# A test of an unreliable service waits for what has been lost: what fails runs again, by itself.
CONFORMANCE_RUNS = 3
# The guest's first one has rdma_rxe, which takes UDP port 4791.
CONFORMANCE_NAMESPACE = "conformance"
CONFORMANCE_LIMIT_S = 1200
GUEST_MEMORY = "3G"
GUEST_LIMIT_S = 4 * 3600
ADD_ENTROPY = 0x40085203  # RNDADDENTROPY
IN_GUEST = "HOSTNIC_NETEM_GUEST"  # what its random numbers begin with


# ---- in the guest

def lose_packets(namespace, interface):
    """Of what leaves the interface. Segmented sends are cut behind netem, and lost whole: rows of packets."""
    qdisc = ["tc", "-n", namespace, "qdisc", "add", "dev", interface, "root", "netem", "loss", f"{LOSS_PERCENT}%"]
    done = subprocess.run(qdisc, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotRun(f"{' '.join(qdisc)}: {done.stderr.strip()}")


def lost_packets(namespace, interface):
    shown = subprocess.run(["tc", "-s", "-n", namespace, "qdisc", "show", "dev", interface], capture_output=True,
                           text=True, check=False).stdout
    found = re.search(r"qdisc netem .*\(dropped (\d+)", shown, re.S)
    return int(found.group(1)) if found else 0


class LossyCable(Cable):
    """Both of whose ends lose packets."""

    def set_up(self):
        super().set_up()
        for host in self.hosts:
            lose_packets(host.namespace, host.interface)

    def kernels_answers(self):
        """Besides: an end that has lost nothing, so that the cases have shown nothing."""
        return super().kernels_answers() + [
            f"netem lost nothing at {host.name}" for host in self.hosts
            if lost_packets(host.namespace, host.interface) == 0]


def cases_over(cable, ports, seed):
    server, client = cable.hosts
    cases = lossy_cases_over(cable, ports)
    for title, arguments, quick in (
            ("all operations", ["--qps", 2, "--max-bytes", "2m"], True),
            ("small messages, events", ["--qps", 4, "--max-bytes", "8k", "--ops", 100, "--events"], False)):
        port = ports.next()
        common = ["--seed", seed, "--timeout-seconds", 120, *arguments]
        cases.append(Case(
            f"hostnic-verify {title} [veth, {cable.name}]",
            pair(port, server.run(cable.verify, "--listen", port, *common),
                 client.run(cable.verify, "--connect", f"{server.exchange_address}:{port}", *common)),
            180, quick, verify_is_ok))
    for case in cases:
        case.name = f"{case.name[:-1]}, netem]"
        case.quick |= case.name.startswith(("ib_write_bw [", "ib_send_bw [", "ib_read_bw [", "ib_atomic_bw ["))
    return cases


def conformance_is_ok(output):
    if "[  FAILED  ]" not in output and re.search(r"\[  PASSED  \] [1-9]\d* test", output):
        return None
    return " ".join(failed_tests(output)) or "it has not come to its end"


def failed_tests(output):
    """Those that the suite names at its end; none if it has not come there."""
    _, ended, listed = output.rpartition("[  PASSED  ] ")
    return re.findall(r"^\[  FAILED  \] (\S+?),?(?: where .*)?$", listed, re.M) if ended else []


def conformance_cases(build):
    for family, mtu in ((4, 1500), (4, 9000), (6, 1500), (6, 9000)):
        addresses = [f"127.77.0.{nic}" if family == 4 else f"fd78::{nic}" for nic in (1, 2)]
        nics = [word for address in addresses for word in ("--nic", f"port=udp,ip={address}")]
        left_out = NOT_CONFORMANCE + (NOT_AT_MTU_1500 if mtu == 1500 else []) + (NOT_OVER_IPV6 if family == 6 else [])
        case = Case(f"conformance suite [lo, udp, IPv{family}, MTU {mtu}, netem]",
                    ["ip", "netns", "exec", CONFORMANCE_NAMESPACE, build / "hostnic", "lab", *nics, "--",
                     build / CONFORMANCE, f"--gtest_filter=-{':'.join(left_out)}"],
                    CONFORMANCE_LIMIT_S, False, conformance_is_ok)
        case.mtu = mtu
        yield case


def run_conformance_case(case):
    """Whether each test has passed, in one of the runs."""
    for again in range(CONFORMANCE_RUNS):
        reason, output, seconds = run_case(case)
        if reason is None:
            print(f"ok   {case.name} ({seconds:.1f})" + (f", {again + 1} runs" if again else ""), flush=True)
            return True
        failed = failed_tests(output)
        if not failed:
            break
        print(f"     {case.name}: {' '.join(failed)} failed", flush=True)
        case.command = [*case.command[:-1], f"--gtest_filter={':'.join(failed)}"]
    told = [f"     | {line}" for line in output.splitlines()[-TAIL_LINES:]]
    print(f"FAIL {case.name} ({seconds:.1f}): {reason}", *told, sep="\n", flush=True)
    return False


def run_conformance(cases):
    """Its two NICs are one hostnicd's; what they exchange goes over the loopback interface."""
    inside = ("-n", CONFORMANCE_NAMESPACE)
    ip("netns", "add", CONFORMANCE_NAMESPACE)
    ip(*inside, "link", "set", "lo", "up")
    for address in ("fd78::1", "fd78::2"):
        ip(*inside, "addr", "add", f"{address}/64", "dev", "lo", "nodad")
    lose_packets(CONFORMANCE_NAMESPACE, "lo")
    status = 0
    for case in cases:
        ip(*inside, "link", "set", "lo", "mtu", case.mtu)
        before = lost_packets(CONFORMANCE_NAMESPACE, "lo")
        status |= 0 if run_conformance_case(case) else 1
        if lost_packets(CONFORMANCE_NAMESPACE, "lo") == before:
            print(f"FAIL netem lost nothing in {case.name}")
            status = 1
    return status


def run_in_guest(options):
    status, ports = 0, Ports()
    for driver, mtu in CABLES:
        cable = LossyCable(options.build, mtu, driver, driver)
        cable.verify = options.build / VERIFY
        cases = select(cases_over(cable, ports, options.seed), options)
        if cases:
            status |= run_over(cable, cases)
        else:
            cable.take_down()
    conformance = select(conformance_cases(options.build), options)
    return status | (run_conformance(conformance) if conformance else 0)


def set_up_guest():
    set_up_tree()
    # A kernel without devices gathers no randomness, and DPDK's libraries wait for it as they are loaded.
    seed = bytes.fromhex(os.environ[IN_GUEST])
    with open("/dev/random", "wb") as random:
        fcntl.ioctl(random, ADD_ENTROPY, struct.pack("ii", 8 * len(seed), len(seed)) + seed)
    ip("link", "set", "lo", "up")


# ---- outside

def missing():
    """None, or why there can be no guest."""
    kernel = peer_directory() / "linux"
    if not kernel.exists():
        return (f"no kernel {kernel}: build it with {SCRIPTS}/build.sh {peer_directory()}, or name its folder "
                "with HOSTNIC_RXE_PEER")
    return None


class UserModeGuest(Guest):
    """A User-Mode Linux."""

    def __init__(self):
        super().__init__("netem", GUEST_LIMIT_S, [f"{IN_GUEST}={os.urandom(64).hex()}"])

    def command(self, first):
        return [peer_directory() / "linux", f"mem={GUEST_MEMORY}", "root=/dev/root", "rootfstype=hostfs",
                "rootflags=/", "ro", f"init={first}", "con=null", "con0=null,fd:1", "ssl=null",
                f"umid=netem{os.getpid()}", f"uml_dir={self.directory}/", "quiet", "panic=-1"]

    def own_environment(self):
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else str(self.directory)
        return {**os.environ, "TMPDIR": memory}


def names(options):
    """Of all cases, which need no guest for that."""
    ports = Ports()
    for driver, mtu in CABLES:
        cable = LossyCable(options.build, mtu, driver, driver)
        cable.verify = options.build / VERIFY
        yield from (case.name for case in select(cases_over(cable, ports, options.seed), options))
        cable.take_down()
    yield from (case.name for case in select(conformance_cases(options.build), options))


def main():
    options = parse(__doc__)
    if IN_GUEST in os.environ and os.getpid() == 1:
        be_first_process(set_up_guest, lambda: run_in_guest(options))
    if options.list:
        print("\n".join(names(options)))
        return 0
    reason = missing()
    if reason is not None:
        return run_cases([Case(name, [], skip=reason) for name in names(options)])
    require_programs(options.build, ["hostnic", "hostnicd", VERIFY, CONFORMANCE])
    for which in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(which, lambda number, _: sys.exit(128 + number))
    guest = UserModeGuest()
    atexit.register(guest.end)
    return guest.run()


if __name__ == "__main__":
    sys.exit(main())
