# SPDX-License-Identifier: BSD-3-Clause
"""Captures of whole labs on bad networks have the same counts as the NICs' counters (capture_counts.py), and show every
kind of verdict. Also what `hostnic capture` prints, refuses and leaves behind."""

import re
import shutil
import sys

from command_cases import output_has
from congestion_cases import ROCE
from harness import HERE, Case, pair, udp_nics, verify_is_ok
from mrc_cases import MRC

COUNTS = HERE / "capture_counts.py"
BAD = "drop 2%; reorder 2% distance 4; duplicate 1%"
BAD_FOR_ICRC = f"{BAD}; corrupt 1%"

# Name, options of the lab, program and options, in the quick run.
COUNTED = [
    ("WRITE, 2 % lost", ["--impair", BAD], ["ib_write_bw", "-n", "100"], True),
    ("SEND, corrupted, too", ["--impair", BAD_FOR_ICRC], ["ib_send_bw", "-n", "100"], False),
    ("READ, lost when it leaves", ["--impair", f"tx {BAD}"], ["ib_read_bw", "-n", "100"], False),
    ("atomics", ["--impair", BAD], ["ib_atomic_bw", "-n", "300"], False),
    ("small messages of 8 QPs", ["--loss", "1%"], ["ib_send_bw", "-n", "1000", "-s", "64", "-q", "8"], False),
    ("go-back-n", ["--loss", "1%", "--nic", "policy=go-back-n", "--nic", "policy=go-back-n"],
     ["ib_write_bw", "-n", "20"], False),
    ("UC", ["--impair", BAD], ["ib_write_bw", "-c", "UC", "-n", "100"], False),
    # perftest waits for every datagram: the copies are lost.
    ("UD", ["--impair", "duplicate all; drop every 2; reorder 2% distance 4"],
     ["ib_send_bw", "-c", "UD", "-n", "200", "-r", "512"], False),
    ("WRITE, transport=roce", [*ROCE, "--impair", BAD], ["ib_write_bw", "-n", "100"], True),
    ("READ, transport=roce", [*ROCE, "--loss", "1%"], ["ib_read_bw", "-n", "100"], False),
    ("WRITE, transport=mrc", [*MRC, "--impair", BAD_FOR_ICRC], ["ib_write_bw", "-n", "100"], True),
    ("WRITE, transport=mrc, trimmed", [*MRC, "--switch", "rate 1Gbit queue 16 trim"], ["ib_write_bw", "-n", "100"], False),
    ("WRITE, transport=mrc, port=udp", ["{udp mrc}", "--loss", "2%"], ["ib_write_bw", "-n", "100"], False),
    ("SEND, port=udp", ["{udp}", "--impair", BAD_FOR_ICRC], ["ib_send_bw", "-n", "100"], False),
]


def counts_agree(output):
    return None if "packets compared" in output and "WRONG" not in output else "capture and counters do not agree"


# What runs in the lab: a server and a client, while {capture} runs; then {end}. $h is hostnic.
SCRIPT = """h={hostnic}; d=$(mktemp -d); trap 'rm -rf "$d"' EXIT; mkfifo $d/ready; exec 9<>$d/ready
{capture} &
head -c 1 $d/ready >/dev/null
{pair} >/dev/null
{end}"""
IMPAIR = "drop nth 5; duplicate nth 9"


def shown_cases(maker, hostnic):
    """As text, live, and what has been kept."""
    for name, capture, end, expected in [
            ("says as text what was lost", "$h capture hnic0 verdict impairment --ready-fd 9 > $d/out",
             "kill -INT $!; wait $!; cat $d/out",
             r"hnic0 <- .* SEND psn .*: dropped by rx impairment rule 1\n.* SEND psn .*: copy made by rx impairment "
             r"rule 2, duplicate\n"),
            ("is read by tshark meanwhile", "$h capture hnic0 -w - opcode SEND --ready-fd 9 --count 30 2>$d/err "
             "| env -u LD_PRELOAD tshark -i - -T fields -e frame.comment > $d/out 2>/dev/null", "wait $!; cat $d/out; wc -l < $d/out",
             r"dropped by rx impairment rule 1\n(.*\n)*30\n"),
            ("keeps what has just been", "$h capture hnic0 --last 60s -w $d/kept --ready-fd 9",
             "test -s $d/kept || echo nothing yet; kill -USR1 $!; i=0; "
             "until grep -a -o 'copy made by rx impairment rule 2' $d/kept || test $i -gt 50; do sleep 0.1; i=$((i+1)); done; "
             "kill -INT $!; wait $!; "
             "grep -a -o 'counters meanwhile: [a-z_]*' $d/kept",
             r"nothing yet\ncopy made by rx impairment rule 2\ncounters meanwhile: tx_packets\n"),
            ("writes what it has kept when it is asked to",
             "$h capture --last 60s -w $d/kept --ready-fd 9",
             "test -s $d/kept || echo nothing yet; $h capture --dump; kill -STOP $!; "
             "grep -a -o 'copy made by rx impairment rule 2' $d/kept | head -n 1; kill -CONT $!; kill -INT $!; wait $!; "
             "$h capture --dump || true",
             r"nothing yet\nhnic0, hnic1: /\S+/kept \(pid \d+\)\ncopy made by rx impairment rule 2\n(.*\n)*"
             r".*nobody keeps packets here"),
            ("writes what it has kept when a program is killed", "$h capture --last 60s -w $d/kept.pcapng --ready-fd 9",
             "ls $d | grep died; {mistakes} peer-killed > $d/facts; sleep 1; "
             "p=$(sed -n 's/fact decimal_pid=//p' $d/facts); test -s $d/kept-died-$p.pcapng && ls $d | grep -c died; "
             "grep -a -c '8 bytes placed' $d/kept-died-$p.pcapng; kill -INT $!; wait $!", r"^1\n[1-9]\d*\n"),
            ("writes what it has kept when hostnicd is killed", "$h capture --last 60s -w $d/kept --ready-fd 9",
             "kill -KILL $(env -u LD_PRELOAD pgrep -P $PPID -x hostnicd); wait $!; "
             "grep -a -o 'copy made by rx impairment rule 2' $d/kept | head -n 1", r"copy made by rx impairment rule 2\n")]:
        port = maker.next_port()
        command = maker.may_leak(["ib_send_bw", "-F", "-n", "20", "-s", "32768", "-p", port])
        end = end.replace("{mistakes}", str(maker.apps / "tests/apps/hostnic-mistakes"))
        script = SCRIPT.format(hostnic=hostnic, capture=capture, end=end, pair=" ".join(map(str, pair(
            port, maker.run_on("hnic0", command), maker.run_on("hnic1", [*command, "127.0.0.1"])))))
        needs_tshark = "tshark" in capture and shutil.which("tshark") is None
        yield Case(f"hostnic capture {name}", [hostnic, "lab", "--impair", IMPAIR, "--", "bash", "-c", script], 60, True,
                   output_has(expected), skip="tshark is not installed" if needs_tshark else None)


def nics_of(option, number):
    """Options of the lab, of which one may stand for NICs of its own."""
    if option == "{udp}":
        return udp_nics(number)
    if option == "{udp mrc}":
        return [f"{word},transport=mrc" if word.startswith("port=") else word for word in udp_nics(number)]
    return [option]


def capture_cases(maker):
    hostnic = maker.build / "hostnic"
    for number, (name, options, program, quick) in enumerate(COUNTED):
        port = maker.next_port()
        lab = [word for option in options for word in nics_of(option, 100 + number)]
        command = maker.may_leak([*program, "-F", "-x", "0", "-p", str(port)])
        both = ["--port", str(port), hostnic, "run", "--device", "hnic0", "--", *command, "----",
                hostnic, "run", "--device", "hnic1", "--", *command, "127.0.0.1"]
        yield Case(f"hostnic capture counts as the NICs do: {name}",
                   [sys.executable, COUNTS, hostnic, "--seed", maker.seed, *lab, "--", *both], 60, quick, counts_agree)
    for name, options in (("every operation", []), ("every operation, transport=roce", ROCE)):
        command = maker.may_leak(
            maker.verify_command(["--rounds", "1", "--ops", "100", "--max-bytes", "16k"], "two NICs"))
        yield Case(f"hostnic capture counts as the NICs do: {name}",
                   [sys.executable, COUNTS, hostnic, "--seed", maker.seed, *options, "--impair", BAD, "--", *command], 90,
                   not options, lambda output: counts_agree(output) or verify_is_ok(output))
    for port_kind in ("udp", "af_packet", "wire"):
        port = maker.next_port()
        command = maker.may_leak(["ib_write_bw", "-F", "-n", "50", "-p", str(port)])
        both = ["--port", str(port), hostnic, "on", "1", "--", *command, "----", hostnic, "on", "2", "--", *command,
                "host1"]
        yield Case(f"hostnic capture counts as the NICs do: hosts, port {port_kind}",
                   [sys.executable, COUNTS, hostnic, "--seed", maker.seed, "--hosts", "2", "--port", port_kind,
                    "--impair", BAD, "--", *both], 60, port_kind == "af_packet", counts_agree)
    yield from shown_cases(maker, hostnic)
    yield Case("hostnic's dissector reads MRC's hand-written packets", [sys.executable, HERE / "mrc_dissector_checks.py"], 60, True,
               lambda output: None if re.search(r"[1-9]\d+ fields of", output) else "nothing was compared",
               skip=None if shutil.which("tshark") else "tshark is not installed")
    for name, words, pattern in [
            ("no such NIC", "hnic7", "no NIC"), ("a filter without a value", "hnic0 qp", "needs a value"),
            ("an opcode that is none", "opcode FOO", "in no opcode's name"),
            ("a time that is none", "--seconds soon", "a time is expected"),
            ("two of one NIC", f"hnic0 -w - & sleep 1; {hostnic} capture hnic0", "captures this NIC already")]:
        line = f"{hostnic} capture {words} >/dev/null; s=$?; kill $! 2>/dev/null; test $s -eq 1"
        yield Case(f"hostnic capture refuses {name}", [hostnic, "lab", "--", "sh", "-c", line], 30, False,
                   lambda output, pattern=pattern: None if pattern in output else f"no '{pattern}'")
