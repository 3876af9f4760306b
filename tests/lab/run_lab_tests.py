#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Stock verbs programs and hostnic-verify between software NICs, each case in its own
`hostnic lab`. Needs no root and no hugepages; as root it reserves some for a moment."""

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import (  # noqa: E402
    HERE, Case, Ports, error_checks_are_ok, may_leak, no_trouble, pair, parse, perftest_rows, pingpong_is_ok,
    require_programs, run_cases, select, verify_is_ok, udp_nics)
from pingpong_options import OPTIONS as PINGPONG_OPTIONS  # noqa: E402
import ordinary_user  # noqa: E402
from apart_cases import apart_cases  # noqa: E402
from auto_cases import auto_cases  # noqa: E402
from by_path_cases import by_path_cases  # noqa: E402
from capture_cases import capture_cases  # noqa: E402
from cm_cases import CM, SERVER_IP, connection_cases, says  # noqa: E402
from collective_cases import ALLREDUCE, collective_cases, compared  # noqa: E402
from command_cases import debugger_cases, reason_cases, refused_cases, running_cases, sysfs_cases, user_cases  # noqa: E402
from congestion_cases import congestion_cases  # noqa: E402
from credit_cases import CREDIT, NETWORKS as CREDIT_NETWORKS, UNEQUAL, credit_cases, credit_is_ok, outside  # noqa: E402
from gpu_cases import gpu_cases  # noqa: E402
from cut_off_cases import cut_off_cases  # noqa: E402
from hosts_cases import hosts_cases  # noqa: E402
from huge_page_cases import huge_page_cases  # noqa: E402
from like_cases import like_cases, like_hosts_cases
from loading_cases import loading_cases  # noqa: E402
from mrc_cases import mrc_cases  # noqa: E402
from roce_cases import roce_cases  # noqa: E402
from service_cases import service_cases  # noqa: E402
from unreliable_cases import UNRELIABLE  # noqa: E402
from shared_receive_cases import SHARED_RECEIVE  # noqa: E402
from mistake_cases import mistake_cases  # noqa: E402
from netlink_cases import netlink_cases  # noqa: E402
from operate_cases import operate_cases  # noqa: E402
from page_cases import page_cases  # noqa: E402
from point_cases import point_cases  # noqa: E402
from prompt_cases import prompt_cases  # noqa: E402
from race_cases import race_cases  # noqa: E402
from simulate_cases import simulate_cases  # noqa: E402
from summary_cases import summary_cases  # noqa: E402
from trace_cases import trace_cases  # noqa: E402
from check_cases import check_cases  # noqa: E402
from ci_cases import ci_cases  # noqa: E402
from fault_cases import fault_cases  # noqa: E402
from switch_cases import switch_cases  # noqa: E402
from timescale_cases import timescale_cases  # noqa: E402
from stress_cases import STRESS, stress_cases  # noqa: E402

VERIFY = Path("tests/apps/hostnic-verify")
PROGRAMS = ["hostnic", "hostnicd", "hostnic-simulate", "libhostnic-verbs.so", "libhostnic-calls.so"]

ALL_SIZES = 23  # -a: 2 bytes to 8 MiB
ONE_SIZE = 1

# program, name of the variant, options, lines of results, in the quick run
BANDWIDTH = ["write", "read", "send"]
PERFTEST = []
for what in BANDWIDTH:
    PERFTEST += [
        (f"ib_{what}_bw", "all sizes", ["-a", "-n", "50"], ALL_SIZES, what == "write"),
        (f"ib_{what}_bw", "8 QPs", ["-q", "8", "-n", "200"], ONE_SIZE, what == "send"),
        (f"ib_{what}_bw", "bidirectional", ["-b", "-n", "500"], ONE_SIZE, what == "read"),
        (f"ib_{what}_bw", "all sizes, bidirectional, 8 QPs", ["-a", "-b", "-q", "8", "-n", "10"],
         ALL_SIZES, False),
    ]
    if what != "write":
        PERFTEST.append((f"ib_{what}_bw", "events", ["-e", "-n", "500"], ONE_SIZE, what == "send"))
for kind in ("FETCH_AND_ADD", "CMP_AND_SWAP"):
    PERFTEST += [
        ("ib_atomic_bw", kind, ["-A", kind, "-n", "1000"], ONE_SIZE, True),
        ("ib_atomic_bw", f"{kind}, 8 QPs", ["-A", kind, "-q", "8", "-n", "200"], ONE_SIZE, False),
        ("ib_atomic_bw", f"{kind}, bidirectional", ["-A", kind, "-b", "-n", "500"], ONE_SIZE,
         False),
        ("ib_atomic_bw", f"{kind}, events", ["-A", kind, "-e", "-n", "500"], ONE_SIZE, False),
        ("ib_atomic_lat", kind, ["-A", kind, "-n", "500"], ONE_SIZE, False),
        ("ib_atomic_lat", f"{kind}, events", ["-A", kind, "-e", "-n", "200"], ONE_SIZE, False),
    ]
for what in ("write", "send", "read"):
    PERFTEST.append(
        (f"ib_{what}_lat", "all sizes", ["-a", "-n", "50"], ALL_SIZES, False))
    if what != "write":
        PERFTEST.append(
            (f"ib_{what}_lat", "events", ["-e", "-n", "500"], ONE_SIZE, what == "send"))

# A RoCE port needs a GID. -c: it compares the bytes, too.
PINGPONG_ALWAYS = ["-g", "0", "-c"]
PINGPONG = [("plain", []), ("events", ["-e"]), ("1 byte", ["-s", "1"]),
            ("1 MiB", ["-s", "1048576", "-n", "200"]), ("MTU 4096", ["-m", "4096"])]

# name, --impair
NETWORKS = {
    "clean": [],
    "loss 1%": ["--impair", "drop 1%; reorder 2% distance 4; duplicate 1%"],
    "loss 5%": ["--impair", "drop 5%; reorder 5% distance 8; duplicate 2%"],
}
# Both ends on two NICs, or on one.
PLACES = {"two NICs": ("hnic0", "hnic1"), "one NIC": ("hnic0", "hnic0")}


def full_userfaultfd():
    """Whether pages may migrate while other threads run (docs/memory.md)."""
    allowed = Path("/proc/sys/vm/unprivileged_userfaultfd")
    return os.geteuid() == 0 or (allowed.exists() and allowed.read_text().strip() == "1")


class Maker:
    def __init__(self, options):
        self.build = options.build
        self.apps = options.apps
        self.seed = options.seed
        self.ports = Ports()
        self.port = None  # the last one
        self.cases = []

    def lab(self, arguments, command):
        return self.lab_of(self.build, arguments, command)

    def lab_of(self, build, arguments, command):
        return [build / "hostnic", "lab", "-q", "--seed", self.seed, *arguments, "--", *self.may_leak(command)]

    may_leak = staticmethod(may_leak)

    @staticmethod
    def scratch():
        """A directory that is gone when all have run."""
        directory = Path(tempfile.mkdtemp(prefix="hostnic-lab-"))
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        return directory

    def next_port(self):
        self.port = self.ports.next()
        return self.port

    def run_on(self, device, command):
        return [self.build / "hostnic", "run", "--device", device, "--", *command]

    def add_pair(self, name, network, place, program, arguments, check, limit_s, quick,
                 slow=False):
        port = self.next_port()
        command = [program, *arguments, "-p", str(port)]
        server, client = PLACES[place]
        self.cases.append(Case(
            f"{name} [{place}, {'loss 1%' if network else 'clean'}]",
            self.lab(network, pair(port, self.run_on(server, command),
                                   self.run_on(client, [*command, "127.0.0.1"]))),
            limit_s, quick, check, slow=slow))

    def add_stock_programs(self):
        where = [(place, network) for place in PLACES for network in ([], ["--loss", "1%"])]
        for which, (place, network) in enumerate(where):
            # perftest samples the CPU's frequency for each size: -a takes a minute on a busy machine.
            limit_s = 180
            plain = place == "two NICs" and not network
            for name, arguments in PINGPONG:
                self.add_pair(f"ibv_rc_pingpong {name}", network, place, "ibv_rc_pingpong",
                              [*PINGPONG_ALWAYS, *arguments], pingpong_is_ok, limit_s,
                              plain or name == "plain")
            for index, (program, name, arguments, rows, quick) in enumerate(PERFTEST):
                # In CI each program runs through all sizes once, in places that take turns.
                slow = rows == ALL_SIZES and (index % len(where) != which or
                                              program in ("ib_write_lat", "ib_read_lat"))
                self.add_pair(f"{program} {name}", network, place, program, ["-F", *arguments],
                              perftest_rows(rows), limit_s,
                              quick and plain, slow)

    def add_unreliable_services(self):
        for place in PLACES:
            for program, name, arguments, rows, quick in UNRELIABLE:
                pingpong = rows == 0
                self.add_pair(f"{program} {name}", [], place, program,
                              [*(PINGPONG_ALWAYS if pingpong else ["-F"]), *arguments],
                              pingpong_is_ok if pingpong else perftest_rows(rows), 180,
                              quick and place == "two NICs")

    def add_shared_receive_queues(self):
        where = [(place, network) for place in PLACES for network in ([], ["--loss", "1%"])]
        for program, name, arguments, rows, quick, loses in SHARED_RECEIVE:
            for place, network in where:
                if network and not loses:
                    continue
                pingpong = rows == 0
                self.add_pair(f"{program} {name}", network, place, program,
                              [*(PINGPONG_ALWAYS if pingpong else ["-F"]), *arguments],
                              pingpong_is_ok if pingpong else perftest_rows(rows), 180,
                              quick and place == "two NICs",
                              slow=rows == ALL_SIZES and place == "one NIC")

    def add_rdma_cm(self):
        for name, server, client, check, quick, loses in CM:
            for network in ([], ["--loss", "1%"]) if loses else ([],):
                self.cases.append(Case(
                    f"{name} [two NICs, {'loss 1%' if network else 'clean'}]",
                    self.lab(network, pair(0, self.run_on("hnic0", server), self.run_on("hnic1", client))),
                    120, quick and not network, check))
        self.cases += connection_cases(self)

    def add_pingpong_options(self):
        """All pairs of a program in one lab; in CI and quickly, those of the richest program."""
        for program in sorted(PINGPONG_OPTIONS):
            inside = [sys.executable, HERE / "pingpong_options.py", "--build", self.build, program]
            self.cases.append(Case(f"{program}, each option [two NICs, clean]",
                                   self.lab([], inside), 300, False,
                                   slow=program != "ibv_rc_pingpong"))

    def add_one_line(self):
        """Two hosts as the README shows them: the client is there before the server listens."""
        port = self.next_port()
        line = (f"hostnic run --device hnic0 -- ib_write_bw -n 500 -p {port} & "
                f"hostnic run --device hnic1 -- ib_write_bw -n 500 -p {port} 127.0.0.1; "
                "client=$?; wait $! && exit $client")
        self.cases.append(Case("server & client in one line", self.lab([], ["sh", "-c", line]),
                               60, True, no_trouble))

    def verify_command(self, arguments, place):
        server, client = PLACES[place]
        return [self.apps / VERIFY, "--both", "--device", server, "--peer-device", client,
                "--seed", self.seed, "--timeout-seconds", "30", *arguments]

    def add_verify(self, name, network, arguments, place="two NICs", memory=None, quick=False,
                   limit_s=180, check=verify_is_ok):
        self.cases.append(Case(
            f"hostnic-verify {name} [{place}, {network}]",
            self.lab(NETWORKS[network], self.verify_command(arguments, place)), limit_s, quick,
            check, {"HOSTNIC_MEMORY": memory} if memory else {}))

    def add_data_checks(self):
        for place in PLACES:
            for network in NETWORKS:
                self.add_verify("all operations", network, ["--qps", "4"], place,
                                quick=place == "two NICs")
                self.add_verify("small messages, 8 QPs", network,
                                ["--qps", "8", "--max-bytes", "8k", "--ops", "100"], place)
                self.add_verify("events", network,
                                ["--events", "--qps", "3", "--max-bytes", "1m"], place,
                                quick=network == "loss 1%")
        # The way to a System V segment's file is for privileged processes only (docs/memory.md).
        files = "memfd,shm,sysv" if os.geteuid() == 0 else "memfd,shm"
        for path, memory in (("memfd", "malloc,mmap"), ("window", "malloc,mmap"), ("file", files)):
            for network in NETWORKS:
                self.add_verify(f"memory path {path}", network,
                                ["--qps", "2", "--max-bytes", "2m", "--memory", memory],
                                memory=path, quick=network == "loss 1%")
                if path == "window" and not full_userfaultfd():
                    self.cases[-1].skip = ("an ordinary user's pages migrate only without other "
                                           "threads (vm.unprivileged_userfaultfd is 0)")
        for mtu in (256, 512, 1024, 2048, 4096):
            self.add_verify(f"MTU {mtu}", "loss 1%",
                            ["--mtu", mtu, "--qps", "2", "--max-bytes", "1m"], quick=mtu == 256)
        for kind in ("malloc", "mmap", "shm", "memfd", "sysv", "stack-unaligned", "huge"):
            self.add_verify(f"memory {kind}", "loss 1%",
                            ["--memory", kind, "--qps", "2", "--max-bytes", "1m"])
        self.add_verify("short queues", "loss 1%",
                        ["--depth", "2", "--qps", "4", "--max-bytes", "64k", "--ops", "100"])

    def add_large_regions(self):
        for network in NETWORKS:
            self.add_verify("1 GiB MR", network,
                            ["--mr-bytes", "1g", "--qps", "2", "--rounds", "4"], limit_s=300,
                            quick=network == "clean")

    def add_operations(self):
        for kind in ("write", "write-imm", "send", "send-imm", "read", "fetch-add", "cmp-swap"):
            self.add_verify(f"only {kind}", "loss 5%",
                            ["--mix", kind, "--qps", "2", "--max-bytes", "1m", "--ops", "50"])

    def add_policies(self):
        for policy in ("go-back-n", "whole-message"):
            nic = ["--nic", f"policy={policy}"]
            self.cases.append(Case(
                f"hostnic-verify all operations, {policy} [two NICs, loss 1%]",
                self.lab([*nic, *nic, *NETWORKS["loss 1%"]],
                         self.verify_command(["--qps", "2", "--max-bytes", "256k"], "two NICs")),
                180, policy == "go-back-n", verify_is_ok))

    def add_udp(self):
        networks = {**NETWORKS, "damage 1%": ["--impair", "corrupt 1%; duplicate 1%"],
                    "damage before it leaves": ["--impair", "tx corrupt 1%; drop 1%"]}
        for number, (name, network) in enumerate(networks.items()):
            self.cases.append(Case(
                f"hostnic-verify all operations, UDP sockets [two NICs, {name}]",
                self.lab([*udp_nics(number), *network],
                         self.verify_command(["--qps", "4", "--max-bytes", "2m"], "two NICs")),
                180, name == "loss 1%", verify_is_ok))

    def add_commands(self):
        scratch = self.scratch()
        self.cases += [*refused_cases(self.build, scratch), *reason_cases(self.build), *running_cases(self),
                       *debugger_cases(self, scratch), *user_cases(self, scratch), *sysfs_cases(self),
                       *loading_cases(self, scratch), *by_path_cases(self), *like_cases(self, scratch),
                       *auto_cases(self, scratch, verify_is_ok, says(r"rdma-ping-999: ")),
                       *huge_page_cases(self, scratch, self.write_bw, perftest_rows(ONE_SIZE))]

    def write_bw(self, arguments):
        port = self.next_port()
        command = ["ib_write_bw", "-F", *arguments, "-p", str(port)]
        server, client = PLACES["two NICs"]
        return pair(port, self.run_on(server, command),
                    self.run_on(client, [*command, "127.0.0.1"]))

    def rping(self):
        return pair(0, self.run_on("hnic0", ["rping", "-s", "-a", SERVER_IP, "-C", "1000", "-V"]),
                    self.run_on("hnic1", ["rping", "-c", "-a", SERVER_IP, "-C", "1000", "-v", "-V"]))

    def add_error_checks(self):
        for place in PLACES:
            for network in ("clean", "loss 1%"):
                self.add_verify("error checks", network, ["--check-errors", "--rounds", "0"],
                                place, check=error_checks_are_ok, quick=network == "clean")

    def add_ordinary_user(self):
        """The same as a user without any privilege, from a directory of its own."""
        arguments = ["--qps", "2", "--max-bytes", "1m", "--memory", "malloc,memfd,mmap"]
        self.add_as_nobody("hostnic-verify", "loss 1%", VERIFY, verify_is_ok, lambda maker: maker.lab(
            NETWORKS["loss 1%"], maker.verify_command(arguments, "two NICs")))
        self.add_as_nobody("hostnic-allreduce", "loss 1%", ALLREDUCE, compared("hostnic-allreduce"), lambda maker: maker.lab(
            NETWORKS["loss 1%"], [maker.apps / ALLREDUCE, "--seed", maker.seed]))
        for network, impaired in CREDIT_NETWORKS.items():
            self.add_as_nobody("credit-channel", network, CREDIT, credit_is_ok(2, impaired), lambda maker, i=impaired:
                               maker.lab(i, outside([maker.apps / CREDIT, "--seed", maker.seed, *UNEQUAL])))

    def add_as_nobody(self, name, network, program, check, command):
        case = Case(f"{name} as an ordinary user [two NICs, {network}]", [], 120, True, check)
        if os.geteuid() != 0:
            case.command = command(self)
        elif ordinary_user.reason_against() is not None:
            case.skip = ordinary_user.reason_against()
        else:
            home = ordinary_user.copy({**{p: self.build / p for p in PROGRAMS}, program: self.apps / program})
            case.environment = ordinary_user.environment(home)
            copied = Maker.__new__(Maker)
            copied.build = copied.apps = home
            copied.seed = self.seed
            case.command = [*ordinary_user.prefix(), *command(copied)]
        self.cases.append(case)


def add_options(parser):
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N",
                        help="run N cases at a time (default: as many as CPUs)")


def main():
    options = parse(__doc__, add_options)
    if options.jobs < 1:
        sys.exit(f"--jobs: {options.jobs} is too few: at least 1")
    if not options.list:
        require_programs(options.build, PROGRAMS)
        require_programs(options.apps, [VERIFY, STRESS, CREDIT, ALLREDUCE])
    maker = Maker(options)
    maker.add_stock_programs()
    maker.add_unreliable_services()
    maker.add_shared_receive_queues()
    maker.add_rdma_cm()
    maker.add_pingpong_options()
    maker.add_one_line()
    maker.add_data_checks()
    maker.add_large_regions()
    maker.add_operations()
    maker.add_error_checks()
    maker.add_policies()
    maker.add_udp()
    maker.cases += stress_cases(maker)
    maker.cases += mistake_cases(maker)
    maker.cases += credit_cases(maker)
    maker.cases += collective_cases(maker)
    maker.cases += service_cases(maker)
    maker.cases += congestion_cases(maker)
    maker.cases += roce_cases(maker, NETWORKS, ALL_SIZES)
    maker.cases += mrc_cases(maker, NETWORKS, ALL_SIZES)
    maker.cases += capture_cases(maker)
    maker.cases += netlink_cases(maker)
    maker.cases += operate_cases(maker)
    maker.cases += trace_cases(maker)
    maker.cases += fault_cases(maker)
    maker.cases += switch_cases(maker)
    maker.cases += timescale_cases(maker)
    maker.cases += check_cases(maker)
    maker.cases += point_cases(maker)
    maker.cases += prompt_cases(maker)
    maker.cases += race_cases(maker)
    maker.cases += simulate_cases(maker)
    maker.cases += summary_cases(maker)
    maker.cases += page_cases(maker)
    maker.cases += ci_cases(maker)
    maker.cases += gpu_cases(maker)
    maker.cases += cut_off_cases(maker)
    maker.add_commands()
    if not options.list:
        maker.add_ordinary_user()
        maker.cases += hosts_cases(maker)
        maker.cases += like_hosts_cases(maker)
        maker.cases += apart_cases(maker)
    cases = select(maker.cases, options)
    if options.list:
        print("\n".join(case.name for case in cases))
        return 0
    return run_cases(cases, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
