#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What hostnic's dissector for Wireshark makes of the hand-written packets of MRC (tests/unit/wire/mrc_samples.h): each
field by its name, by hand from the same bytes."""

import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SAMPLES = REPOSITORY / "tests" / "unit" / "wire" / "mrc_samples.h"
DISSECTOR = REPOSITORY / "packaging" / "wireshark" / "hostnic.lua"
SAMPLE = re.compile(r'\{"(\w+)",(?:\s*//[^\n]*)?\s*((?:"[^"]*"\s*)+),\s*"([^"]*)"\}')
ICRC = bytes.fromhex("c1c2c3c4")
LINKTYPE_ETHERNET = 1
BTH = {"mrc.destqp": "0x010203"}
# Name, how many bytes of the sample there are (None: all, and the ICRC), fields of which it must say this; None: it must
# not have them.
EXPECTED = [
    ("write_first", None, {
        **BTH, "mrc.opcode": "0xc6", "mrc.solicited": "1", "mrc.ackreq": "1", "mrc.rtx": "1", "mrc.ts": "1", "mrc.psn": "16777214",
        "mrc.meth.rqmsn": "0", "mrc.meth.msn": "7", "mrc.timestamp": "4660", "mrc.tsr": "0", "mrc.timestamp_format": "1",
        "mrc.reth.va": "0x1122334455667788", "mrc.reth.rkey": "0x99aabbcc", "mrc.reth.length": "8192", "mrc.payload": "a0a1a2a3",
        "mrc.icrc": "0xc4c3c2c1", "mrc.retransmission": "1"}),
    ("write_middle", None, {**BTH, "mrc.opcode": "0xc7", "mrc.rtx": "0", "mrc.ts": "0", "mrc.timestamp": None, "mrc.psn": "16777215",
                            "mrc.reth.va": "0x1122334455668788", "mrc.payload": "b0b1b2b3", "mrc.retransmission": None}),
    ("write_last", None, {**BTH, "mrc.opcode": "0xc8", "mrc.pad": "3", "mrc.tsr": "1", "mrc.timestamp": "4661", "mrc.psn": "0",
                          "mrc.payload": "d0", "mrc.icrc": "0xc4c3c2c1"}),
    ("write_last_imm", None, {**BTH, "mrc.opcode": "0xc9", "mrc.meth.rqmsn": "5", "mrc.meth.msn": "8", "mrc.immdt": "01020304",
                              "mrc.payload": "e0e1e2e3"}),
    ("write", None, {**BTH, "mrc.opcode": "0xca", "mrc.pad": "2", "mrc.payload": "f0f1", "mrc.immdt": None}),
    ("write_imm", None, {**BTH, "mrc.opcode": "0xcb", "mrc.pkey": "0x7fff", "mrc.meth.rqmsn": "6", "mrc.immdt": "05060708",
                         "mrc.payload": None, "mrc.icrc": "0xc4c3c2c1"}),
    ("ack", None, {**BTH, "mrc.opcode": "0xd1", "mrc.aeth.kind": "0", "mrc.aeth.code": "31", "mrc.aeth.msn": "258", "mrc.nak": None}),
    ("nak", None, {**BTH, "mrc.aeth.kind": "3", "mrc.aeth.code": "2", "mrc.aeth.msn": "259", "mrc.nak": "1"}),
    ("endpoint_request", None, {"mrc.destqp": "0x000002", "mrc.endpoint_id": "0xabcd", "mrc.erth.operation": "0", "mrc.vendor": "0x55",
                                "mrc.erth.port_status_mask": "0x80000003", "mrc.timestamp": "4951"}),
    ("endpoint_probe", None, {"mrc.endpoint_id": "0xabce", "mrc.erth.operation": "1"}),
    ("endpoint_response", None, {"mrc.endpoint_id": "0xabce", "mrc.eeth.operation": "1", "mrc.timestamp": "4952",
                                 "mrc.erth.operation": None}),
    ("sack", None, {
        **BTH, "mrc.rtx": "1", "mrc.psn": "16", "mrc.seth.m": "1", "mrc.skip": "1", "mrc.seth.pr": "0", "mrc.seth.ack_psn_offset": "-3",
        "mrc.seth.ack_psn": "13", "mrc.probe_id": None, "mrc.entropy": "0x1a2b3c4d", "mrc.source_context": "0x0506",
        "mrc.destination_context": "0x0203", "mrc.seth.cumulative_psn": "16", "mrc.cc_type": "0", "mrc.cc_flags": "0x07",
        "mrc.seth.mpr": "4", "mrc.seth.sack_offset": "9", "mrc.seth.sack_psn": "25", "mrc.seth.bitmap": "0xc000000000000003",
        "mrc.timestamp": "22136", "mrc.cc_state.out_of_order": "2748", "mrc.cc_state.restore_cwnd": "1",
        "mrc.cc_state.rcv_cwnd_pen": "41", "mrc.cc_state.received": "855567", "mrc.retransmission": None}),
    ("sack_of_probe", None, {"mrc.seth.m": "2", "mrc.seth.pr": "1", "mrc.probe_id": "31355", "mrc.seth.ack_psn": None,
                             "mrc.seth.cumulative_psn": "16777200", "mrc.seth.sack_offset": "-1", "mrc.seth.sack_psn": "16777199",
                             "mrc.cc_state.restore_cwnd": "0"}),
    ("nack", None, {"mrc.neth.reason": "2", "mrc.nack": "1", "mrc.vendor": "0x33", "mrc.entropy": "0x1a2b3c4e",
                    "mrc.neth.psn": "658188", "mrc.cc_type": "2", "mrc.cc_flags": "0x05", "mrc.timestamp": "26505"}),
    ("probe", None, {"mrc.vendor": "0x44", "mrc.probe_id": "31355", "mrc.source_context": "0x0506",
                     "mrc.destination_context": "0x0203", "mrc.timestamp": "9320", "mrc.tsr": "1"}),
    # What a switch leaves of a WRITE, and what nobody should have sent.
    ("write_first", 20, {**BTH, "mrc.meth.msn": "7", "mrc.timestamp": "4660", "mrc.reth.va": None, "mrc.trimmed": "1", "mrc.short": None}),
    ("write_first", 30, {"mrc.reth.va": None, "mrc.trimmed": None, "mrc.short": "1"}),
    ("sack", 39, {"mrc.seth.bitmap": None, "mrc.short": "1"}),
]


def samples():
    """{name: bytes without ICRC}"""
    found = {}
    for name, headers, payload in SAMPLE.findall(SAMPLES.read_text(encoding="utf-8")):
        found[name] = bytes.fromhex("".join(re.findall(r'"([^"]*)"', headers)) + payload)
    return found


def frame_of(udp_payload):
    udp = struct.pack(">4H", 0xC123, 4791, 8 + len(udp_payload), 0) + udp_payload
    addresses = bytes([10, 0, 0, 1, 10, 0, 0, 2])
    return bytes(12) + struct.pack(">HBBHHHBBH", 0x0800, 0x45, 0, 20 + len(udp), 0, 0x4000, 64, 17, 0) + addresses + udp


def write_pcap(path, frames):
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, LINKTYPE_ETHERNET))
        for number, frame in enumerate(frames):
            file.write(struct.pack("<IIII", number, 0, len(frame), len(frame)) + frame)


def shown(path, names):
    """What tshark says of each packet, as {field: text}; what a packet does not have is not there."""
    options = [word for name in names for word in ("-e", name)]
    done = subprocess.run(["tshark", "-X", f"lua_script:{DISSECTOR}", "-r", path, "-T", "fields", *options],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0 or "lua" in done.stderr.lower().replace("hostnic.lua", ""):
        sys.exit(f"tshark: {done.stderr}")
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return [{name: value for name, value in zip(names, row) if value} for row in rows]


def main():
    found = samples()
    missing = set(found) - {name for name, _, _ in EXPECTED}
    names = sorted({name for _, _, fields in EXPECTED for name in fields})
    frames = [frame_of(found[name] + ICRC if count is None else found[name][:count]) for name, count, _ in EXPECTED]
    wrong = [f"sample {name} is compared with nothing" for name in sorted(missing)]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "samples.pcap"
        write_pcap(path, frames)
        rows = shown(path, names)
    if len(rows) != len(EXPECTED):
        wrong.append(f"{len(rows)} packets of {len(EXPECTED)}")
    for (name, count, fields), row in zip(EXPECTED, rows):
        for field, value in fields.items():
            if row.get(field) != value:
                wrong.append(f"{name}{'' if count is None else f' of {count} bytes'}: {field} is {row.get(field)}, not {value}")
    for line in wrong:
        print(f"WRONG {line}")
    print(f"{sum(len(fields) for _, _, fields in EXPECTED)} fields of {len(rows)} packets compared")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
