#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Traces messages in labs, and reads the traces twice: by `hostnic report`, and event by event here.

  point_checks.py messages HOSTNIC PORT     each message of perftest has all its steps in order, over all transports,
                                            with and without loss
  point_checks.py program HOSTNIC VERIFY    messages of a program that uses all verbs
  point_checks.py prompt HOSTNIC PORT       on, off, save, and what is refused
"""

import json
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

COUNT = 200
# A server whose client has failed waits for the next one.
PAIR = """timeout 60 hostnic run --device hnic0 -- {program} >/dev/null &
hostnic run --device hnic1 -- {program} 127.0.0.1 >/dev/null; wait"""
# Program, options, messages of both ends, options of the lab.
ROCE = ["--nic", "transport=roce", "--nic", "transport=roce"]
ROWS = [
    ("ib_write_lat", ["-s", "2"], 2, []),
    ("ib_write_lat", ["-s", "20000"], 2, ["--loss", "2%"]),
    ("ib_send_lat", ["-s", "2"], 2, ["--loss", "2%"]),
    ("ib_read_lat", ["-s", "20000"], 1, ["--loss", "2%"]),
    ("ib_atomic_lat", [], 1, []),
    ("ib_write_lat", ["-s", "20000"], 2, [*ROCE, "--loss", "2%"]),
    ("ib_read_lat", ["-s", "20000"], 1, [*ROCE, "--loss", "2%"]),
    ("ib_send_lat", ["-c", "UC"], 2, []),
    ("ib_send_lat", ["-c", "UD"], 2, []),
]
SIZES = {"uint8_t": 1, "uint16_t": 2, "uint32_t": 4, "uint64_t": 8}


def kinds_of(metadata):
    """Of each id of an event: its name and its fields' format."""
    kinds = {}
    for number, name, fields in re.findall(r'event \{\s*id = (\d+);\s*name = "([^"]+)";\s*fields := struct \{(.*?)\};\s*\};',
                                           metadata, re.DOTALL):
        if name.startswith("hostnic."):
            layout = re.findall(r"(\w+) (\w+);", fields)
            letters = "".join({1: "B", 2: "H", 4: "I", 8: "Q"}[SIZES[kind]] for kind, _ in layout)
            kinds[int(number)] = (name, struct.Struct("<" + letters), [field for _, field in layout])
    return kinds


def events_of(directory):
    kinds = kinds_of((directory / "metadata").read_text(encoding="utf-8"))
    assert len(kinds) == 8, kinds
    for path in directory.glob("channel*"):
        stream = path.read_bytes()
        assert struct.unpack_from("<I", stream)[0] == 0xC1FC1FC1, path
        at = 56
        while at + 8 <= len(stream):
            name, layout, fields = kinds[struct.unpack_from("<Q", stream, at)[0] >> 48]
            yield name, dict(zip(fields, layout.unpack_from(stream, at + 8)))
            at = (at + 8 + layout.size + 7) // 8 * 8


def report(hostnic, directory, *words):
    return subprocess.run([hostnic, "report", *words, directory], stdout=subprocess.PIPE, text=True, check=True).stdout


def lab(hostnic, directory, options, command):
    subprocess.run([hostnic, "lab", "-q", "--trace-points", directory, *options, "--", "sh", "-c", command], check=True)


def check_messages(hostnic, directory, port):
    for row, (program, options, ends, lab_options) in enumerate(ROWS):
        what = " ".join([program, *options, *lab_options])
        trace = directory / str(row)
        words = " ".join([program, "-F", "-n", str(COUNT), "-p", port, *options])
        lab(hostnic, trace, lab_options, PAIR.format(program=words))
        told = json.loads(report(hostnic, trace, "--json"))
        assert told["messages"] == told["complete"] == told["in_order"] == ends * COUNT, (what, told)
        assert told["missed"] == told["failed"] == 0 and told["queue_pairs"] == ends, (what, told)
        # The same from the events.
        counts, posts = {}, {}
        for name, event in events_of(trace):
            counts[name] = counts.get(name, 0) + 1
            if name == "hostnic.posted":
                posts[event["qpn"], event["number"]] = event
            if name == "hostnic.polled":
                post = posts.pop((event["qpn"], event["number"]))
                assert post["at"] < event["at"] and post["wr_id"] == event["wr_id"], (what, post, event)
        assert counts["hostnic.posted"] == counts["hostnic.polled"] == ends * COUNT and not posts, (what, counts)
        assert sum(counts.values()) == told["events"], (what, counts, told)
        whole = [each for each in told["segments"] if (each["from"], each["to"]) == ("posted", "polled")]
        assert whole[0]["messages"] == ends * COUNT and whole[0]["median_ns"] <= whole[0]["p99_ns"] <= whole[0]["max_ns"]
        assert len(told["slowest"]) == 10 and "posted -> polled" in report(hostnic, trace), what
        print(f"{what}: {ends * COUNT} messages")
    print("every message has all its steps")


def check_program(hostnic, directory, verify):
    lab(hostnic, directory / "verify", ["--loss", "1%"], f"{verify} --both --device hnic0 --peer-device hnic1 --rounds 3 --qps 2 --timeout-seconds 30 >/dev/null")
    told = json.loads(report(hostnic, directory / "verify", "--json"))
    assert told["messages"] > 100 and told["in_order"] == told["complete"], told
    if told["missed"] == 0:
        assert told["complete"] + told["failed"] == told["messages"], told
    print(f"{told['messages']} messages of a program are traced")


def check_prompt(hostnic, directory, port):
    trace = directory / "a trace"
    words = f"ib_write_lat -F -n {COUNT} -p {port}"
    script = f"""
ctl() {{ {hostnic} ctl "$@" || echo "status $?"; }}
ctl 'trace points'
ctl 'trace points save {directory}/none'
{PAIR.format(program=words)}
ctl 'trace points on'
{PAIR.format(program=words)}
ctl 'trace points off'
{PAIR.format(program=words)}
ctl 'trace points save relative'
ctl 'trace points save {trace}'
ctl 'trace points save {trace}'
ctl 'trace points maybe'
"""
    done = subprocess.run([hostnic, "lab", "-q", "--", "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=True).stdout
    print(done)
    for line in ("trace points off: 0 events, 0 not recorded", "nothing was traced", "begin it with /", "File exists",
                 "usage: trace points"):
        assert line in done, line
    recorded = int(re.search(r"trace points off: ([1-9]\d*) events, 0 not recorded", done).group(1))
    told = json.loads(report(hostnic, trace, "--json"))
    assert told["events"] == recorded and told["complete"] == told["messages"] == 2 * COUNT, told
    print("traces begin and end as they are told to")


def main():
    what, hostnic, word = sys.argv[1:4]
    with tempfile.TemporaryDirectory() as directory:
        {"messages": check_messages, "program": check_program, "prompt": check_prompt}[what](hostnic, Path(directory), word)


main()
