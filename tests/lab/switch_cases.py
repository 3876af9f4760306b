# SPDX-License-Identifier: BSD-3-Clause
"""A switch between a lab's NICs (docs/switch.md): every transport's data through its queues and paths, what it says of
itself, and words that are none."""

import json
import re
import shlex

from fault_cases import has_all
from harness import Case, verify_is_ok

NARROW = "rate 1Gbit queue 32 ecn 16"
PATHS = "rate 2Gbit queue 64 ecn 32 paths 4 trim"
COUNTERS = ["packets", "bytes", "dropped", "marked", "trimmed", "longest_queue"]


def nics(transport):
    return [word for _ in range(2) for word in ("--nic", f"transport={transport}")]


def counters_agree(output):
    """Text and JSON of `show switch` say the same of each port and path, and something went through them."""
    said = re.search(r"^\{.*\}$", output, re.MULTILINE)
    if said is None:
        return "no JSON"
    lines = []
    for nic in json.loads(said.group())["nics"]:
        for name, link in [("port", nic["port"]), *((f"path {i}", link) for i, link in enumerate(nic["paths"], 1))]:
            counts = " ".join(f"{counter.replace('_', '-')} {link[counter]}" for counter in COUNTERS)
            lines.append(f"{nic['nic']} {name}: {counts}")
        packets = sum(link["packets"] for link in nic["paths"])
        if packets == 0 or packets < nic["port"]["packets"]:
            return f"{packets} packets by the paths, {nic['port']['packets']} by the port of {nic['nic']}"
    missing = [line for line in lines if line not in output.splitlines()]
    return f"not in the text: {missing}" if missing or len(lines) != 10 else None


def switch_cases(maker):
    hostnic = maker.build / "hostnic"
    for transport in ("hostnic", "roce", "mrc"):
        mix = ["--mix", "write"] if transport == "mrc" else []
        for words in (NARROW, PATHS):
            yield Case(f"hostnic-verify behind a switch [transport={transport}, {words}]",
                       maker.lab(["--switch", words, *nics(transport)],
                                 maker.verify_command(["--qps", "4", "--rounds", "2", "--max-bytes", "64k", *mix], "two NICs")),
                       180, words == PATHS, verify_is_ok)
    verify = shlex.join(str(word) for word in maker.verify_command(["--qps", "8", "--rounds", "1", "--mix", "write"], "two NICs"))
    ctl = f"{hostnic} ctl"
    yield Case("show switch: text, JSON and metrics",
               maker.lab(["--switch", PATHS, *nics("mrc")],
                         ["sh", "-c", f"{verify} && {ctl} 'show switch' && {ctl} --json 'show switch' && {hostnic} metrics | "
                          "grep hostnic_switch"]), 120, True,
               lambda output: counters_agree(output) or has_all(r"hostnic_switch_packets\S* [1-9]")(output))
    # A rule of a path is shown, and gone again.
    yield Case("a path that is black, and back",
               maker.lab(["--switch", "rate 2Gbit paths 2"],
                         ["sh", "-c", f"{ctl} 'set impair all tx blackhole path 2' && {ctl} 'show impair' && "
                          f"{ctl} 'set impair all tx none' && {verify}"]), 120, True,
               has_all("tx drop all path 2", "hostnic-verify: ok:"))
    for name, arguments, pattern in [
            ("no rate", ["--switch", "queue 128"], "--switch: .*rate"),
            ("a queue of nothing", ["--switch", "rate 1Gbit queue 0"], "--switch: .*a number of packets from 1 to 4096"),
            ("a word that is none", ["--switch", "rate 1Gbit fast"], "--switch: .*fast"),
            ("too many paths", ["--switch", "rate 1Gbit paths 65"], "--switch: .*64"),
            ("a path that is not there", ["--switch", "rate 1Gbit paths 2", "--impair", "blackhole path 3"], "path 3"),
            ("a path without a switch", ["--impair", "blackhole path 1"], "switch")]:
        yield Case(f"switch: refuses {name}",
                   ["sh", "-c", shlex.join([str(hostnic), "lab", *arguments, "--", "true"]) + "; test $? -eq 2 -o $? -eq 1"],
                   20, name == "a word that is none", has_all(pattern))
    yield from path_cases(maker, ctl)


def path_is_avoided(output):
    """Of a queue pair's paths some are avoided when one of the switch is black, and none before; data arrive."""
    shown = [json.loads(line) for line in re.findall(r"^\[\{.*\}\]$", output.replace("}\n]", "}]"), re.MULTILINE)]
    counts = [max((sum(path["state"] == "avoided" for path in qp.get("paths", [])) for qp in qps), default=-1)
              for qps in shown]
    return None if len(counts) == 2 and counts[0] == 0 < counts[1] else f"avoided: {counts}"


def path_cases(maker, ctl):
    """Native queue pairs that spray their packets (docs/transport.md, rule 37)."""
    for words in ("rate 2Gbit queue 64 ecn 32 paths 4", "none"):
        yield Case(f"hostnic-verify with eight paths [switch {words}]",
                   maker.lab(["--paths", "8", "--switch", words],
                             maker.verify_command(["--qps", "4", "--rounds", "2", "--max-bytes", "64k"], "two NICs")),
                   180, words != "none", verify_is_ok)
    verify = shlex.join(str(word) for word in maker.verify_command(["--qps", "4", "--rounds", "2"], "two NICs"))
    yield Case("hostnic-verify with a path that is black from the beginning, and one that loses",
               maker.lab(["--paths", "16", "--switch", "rate 2Gbit paths 4", "--impair", "tx blackhole path 2; drop 5% path 3"],
                         ["sh", "-c", verify]), 180, True, verify_is_ok)
    stream = ("hostnic run --device hnic0 -- ib_write_bw -F -D 8 -p 18703 & sleep 1; "
              "hostnic run --device hnic1 -- ib_write_bw -F -D 8 -p 18703 127.77.0.1 & sleep 2; ").replace(
                  "hostnic run", f"{maker.build / 'hostnic'} run")
    yield Case("show qp says which paths are avoided",
               maker.lab(["--paths", "16", "--switch", "rate 1Gbit queue 64 paths 4"],
                         ["sh", "-c", f"{stream} {ctl} --json 'show qp hnic1'; {ctl} 'set impair all tx blackhole path 2'; "
                          f"sleep 2; {ctl} --json 'show qp hnic1'; {ctl} 'show qp hnic1'; wait"]), 60, True,
               lambda output: path_is_avoided(output) or has_all(r"paths 1 (good|avoided) rtt-us \d+ lost \d+")(output))
    for name, arguments, pattern in [
            ("more than there are", ["--paths", "17"], "--paths.*16"),
            ("a receiver that goes back", ["--nic", "paths=4,policy=go-back-n"], "hnic0 has 4 paths and policy"),
            ("a port of one source port", ["--nic", "ip=127.0.0.1/8,port=udp,paths=4"],
             "hnic0 on port udp has 4 paths: .* one source port")]:
        yield Case(f"paths: refuses {name}",
                   ["sh", "-c", shlex.join([str(maker.build / "hostnic"), "lab", *arguments, "--", "true"]) +
                    "; test $? -ne 0"], 20, True, has_all(pattern))
