# SPDX-License-Identifier: BSD-3-Clause
"""perftest's WRITEs and hostnic-verify between NICs that speak MRC (docs/mrc.md), and programs of libmrc.so."""

import itertools
import os
import re
import shlex
import sys

from cm_cases import says
from harness import REPOSITORY, Case, pair, perftest_rows, udp_nics, verify_is_ok

MRC = ["--nic", "transport=mrc", "--nic", "transport=mrc"]
REFUSAL = re.compile(r"ibv_post_send: QP .*the connection speaks MRC.*EOPNOTSUPP")
OTHER_TRANSPORT = re.compile(r"mrc_query_device: hnic0 speaks hostnic.*transport=mrc")
FIRST_UDP_LAB = 60  # others' are below
ROWS = [("ib_write_bw", ["-n", "1000"]), ("ib_write_lat", ["-n", "500"]), ("ib_write_bw", ["-a", "-q", "2", "-n", "10"])]
# WRITEs with immediate data find no receive now and then, which MRC takes for an error.
WRITES = ["--mix", "write"]
# By its name, as programs load it that take MRC where it is: each function that the map has.
LOADS_LIBMRC = r"""
import ctypes, re, sys
library = ctypes.CDLL('libmrc.so')
names = re.findall(r'\b(mrc_\w+);', open(sys.argv[1]).read())
print(len(names) > 30, [name for name in names if not hasattr(library, name)])
version = ctypes.c_uint32()
library.mrc_query_version(ctypes.byref(version), None, None, None)
print(hex(version.value))
"""


def mrc_cases(maker, networks, all_sizes):
    """`networks`: hostnic lab's options by name."""
    labs = itertools.count(FIRST_UDP_LAB)

    def nics_of(wire):
        if wire == "two NICs":
            return MRC
        return [f"{word},transport=mrc" if word.startswith("port=") else word for word in udp_nics(next(labs))]

    for wire in ("two NICs", "udp"):
        for network, options in (("clean", []), ("loss 1%", ["--loss", "1%"]), ("loss 5%", ["--loss", "5%"])):
            for program, arguments in ROWS:
                port = maker.next_port()
                command = [program, "-F", *arguments, "-p", str(port)]
                yield Case(f"{' '.join([program, *arguments])} [{wire}, transport=mrc, {network}]",
                           maker.lab([*nics_of(wire), *options], pair(port, maker.run_on("hnic0", command),
                                                             maker.run_on("hnic1", [*command, "127.0.0.1"]))),
                           180, network == "loss 1%" and "-a" not in arguments,
                           perftest_rows(all_sizes if "-a" in arguments else 1))
        for network, options in networks.items():
            yield Case(f"hostnic-verify WRITEs [{wire}, transport=mrc, {network}]",
                       maker.lab([*nics_of(wire), *options], maker.verify_command(["--qps", "4", *WRITES], "two NICs")), 180,
                       network == "loss 1%", verify_is_ok)
    yield from refused_cases(maker)
    yield from plane_cases(maker)
    yield from libmrc_cases(maker, networks, nics_of)


def plane_cases(maker):
    """Planes, and what a controller sees of them and says."""
    planes = ["--mrc", "--planes", "4", "--paths", "64"]
    transfer = "ib_write_bw -d hnic0 -F -D 9 >/dev/null & sleep 1; ib_write_bw -d hnic1 -F -D 9 127.0.0.1 >/dev/null & " \
               "until hostnic mrc hnic1 | grep -q 'plane 1'; do sleep 0.1; done"
    commands = ["mrc hnic1", "mrc port hnic1 2 down", "mrc hnic1", "mrc --json hnic1", "mrc port hnic1 2 up",
                "mrc probe hnic0 127.77.0.2", "mrc value hnic0 49152 denied", "ctl show switch", "ctl show counters"]
    yield Case("four planes, seen and changed by hostnic mrc",
               maker.lab(planes, ["sh", "-c", f"{transfer}; {'; '.join('hostnic ' + each for each in commands)}; wait"]),
               60, True, says(r"plane 1 \d+ good.*, plane 2 \d+ good.*, plane 3 \d+ good.*, plane 4 \d+ good",
                              "port 1 up, port 2 down, port 3 up, port 4 up", r"plane 1 \d+ good.*, plane 2 16 denied",
                              '"port_up":false,"good":0,"skipped":0,"bad":0,"denied":16',
                              "by value 49155, plane 4: answered after", "planes 4 path-rate 2.5Gbit",
                              "hnic0 mrc_endpoint_requests [2-9]"))
    verify = maker.verify_command(["--qps", "4", *WRITES], "two NICs")
    yield Case("hostnic-verify WRITEs, one of four planes black [transport=mrc]",
               maker.lab([*planes, "--impair", "rx blackhole plane 3"], verify), 180, True, verify_is_ok)
    refusals = [
        ("planes without MRC", ["--planes", "4"], "--planes 4: hnic0 has transport \"hostnic\" (add --mrc)"),
        ("values that are no multiple", ["--mrc", "--planes", "4", "--paths", "6"], "6 entropy values over 4 planes"),
        ("a switch of one plane", ["--mrc", "--planes", "4", "--switch", "rate 1Gbit"], "add planes 4 to its words"),
        ("native paths", ["--paths", "17"], "use 1 to 16, or add --mrc"),
        ("a plane that is not there", ["--mrc", "--planes", "2", "--impair", "drop 1% plane 3"], "planes 1 to 2")]
    for name, options, words in refusals:
        yield Case(f"refused: {name}", ["sh", "-c", shlex.join(map(str, maker.lab(options, ["true"]))) + "; test $? = 2 -o $? = 1"],
                   30, True, says(re.escape(words)))
    wrong = ["port hnic0 5 down", "value hnic0 7 denied", "port hnic0", "probe hnic0 127.77.0.1"]
    yield Case("hostnic mrc refuses what there is not",
               maker.lab(planes, ["sh", "-c", f"{'; '.join('hostnic mrc ' + each for each in wrong)}; true"]), 30, True,
               says("hnic0 has ports 1 to 4", "7 is no entropy value", "usage: set mrc", "127.77.0.1 is hnic0 itself"))


def libmrc_cases(maker, networks, nics_of):
    """A program that calls libmrc.so, and finds it by its run path."""
    skip = "sanitizers' runtimes come first" if "ASAN_OPTIONS" in os.environ else None
    program = maker.apps / "tests/apps/hostnic-mrc"
    is_right = says("hostnic-mrc: sender ok", "hostnic-mrc: receiver ok: all bytes are right")
    for wire in ("two NICs", "udp"):
        for network, options in networks.items():
            yield Case(f"libmrc: hostnic-mrc [{wire}, {network}]", maker.lab([*nics_of(wire), *options], [program]), 60,
                       wire == "two NICs" and network != "loss 5%", is_right, skip=skip)
    yield Case("libmrc: hostnic-mrc without the preload",
               maker.lab(MRC, ["env", "-u", "LD_PRELOAD", program]), 60, True, is_right, skip=skip)
    yield Case("libmrc: a NIC that speaks something else", maker.lab([], ["sh", "-c", f"{program}; test $? = 1"]), 60, True,
               lambda output: None if OTHER_TRANSPORT.search(output) else "nothing says what the NIC speaks", skip=skip)
    yield Case("libmrc: loaded by its name", ["env", f"LD_LIBRARY_PATH={maker.build / 'lib'}", sys.executable, "-c", LOADS_LIBMRC,
                                              REPOSITORY / "verbs-shim/mrc/mrc.map"], 60, True,
               says(r"True \[\]", "0x1000001"), skip=skip)


def refused_cases(maker):
    """What MRC does not have, and who does not speak it, are lines that say what to do."""
    port = maker.next_port()
    command = ["ib_send_bw", "-F", "-n", "5", "-p", str(port)]
    ends = pair(port, maker.run_on("hnic0", ["timeout", "8", *command]), maker.run_on("hnic1", [*command, "127.0.0.1"]))
    send = f"{shlex.join(str(word) for word in ends)}; true"
    yield Case("a SEND is refused with a line [transport=mrc]", maker.lab(MRC, ["sh", "-c", send]), 60, True,
               lambda output: None if REFUSAL.search(output) else "nothing says why the SEND was refused")
    show = "ib_write_bw -F -D 3 & sleep 1; ib_write_bw -F -D 3 127.0.0.1 & sleep 2; hostnic ctl show qp; wait"
    yield Case("show qp, show nic and counters know MRC", maker.lab(MRC, ["sh", "-c", f"{show}; hostnic ctl show nic; "
                                                                        "hostnic ctl show counters"]), 60, True,
               says("RC/mrc", "transport mrc", "mrc_sacks_sent [1-9]"))
    mixed = ["--nic", "transport=mrc", "--nic", "transport=roce"]
    verify = shlex.join(str(word) for word in maker.verify_command(["--qps", "1", "--rounds", "1", *WRITES], "two NICs"))
    yield Case("a peer that speaks something else is told of [transport=mrc]",
               maker.lab(mixed, ["sh", "-c", f"{verify}; true"]), 120, True, says("speaks RoCE, and this one MRC"))
