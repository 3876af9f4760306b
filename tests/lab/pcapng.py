# SPDX-License-Identifier: BSD-3-Clause
"""Reads the pcapng files that `hostnic capture` writes, strictly: whatever does not agree is an error."""

import dataclasses
import struct
from pathlib import Path

SECTION, INTERFACE, STATISTICS, PACKET = 0x0A0D0D0A, 1, 5, 6
COMMENT, NAME, FLAGS, RECEIVED, DROPPED = 1, 2, 2, 4, 5


@dataclasses.dataclass
class Packet:
    interface: str
    time_ns: int
    bytes: bytes
    original_bytes: int
    sent: bool
    comment: str


@dataclasses.dataclass
class Capture:
    interfaces: list = dataclasses.field(default_factory=list)
    packets: list = dataclasses.field(default_factory=list)
    # By interface: (received, dropped, comment).
    statistics: dict = dataclasses.field(default_factory=dict)


def options_in(data):
    """{code: value}"""
    found = {}
    while data:
        code, length = struct.unpack_from("<HH", data)
        if code == 0:
            assert length == 0 and len(data) == 4, "bytes behind the end of the options"
            return found
        assert 4 + length <= len(data), "an option is longer than its block"
        found[code] = data[4:4 + length]
        data = data[4 + (length + 3) // 4 * 4:]
    raise AssertionError("options without an end")


def blocks_of(data):
    while data:
        kind, length = struct.unpack_from("<II", data)
        assert length % 4 == 0 and 12 <= length <= len(data), "a block's length"
        assert struct.unpack_from("<I", data, length - 4)[0] == length, "a block's second length"
        yield kind, data[8:length - 4]
        data = data[length:]


def read(path):
    capture = Capture()
    data = memoryview(Path(path).read_bytes())
    for number, (kind, body) in enumerate(blocks_of(data)):
        assert (kind == SECTION) == (number == 0), "one section, at the start"
        if kind == SECTION:
            assert struct.unpack_from("<IHH", body) == (0x1A2B3C4D, 1, 0), "byte order or version"
        elif kind == INTERFACE:
            assert struct.unpack_from("<H", body)[0] == 1, "no Ethernet"
            capture.interfaces.append(bytes(options_in(body[8:])[NAME]).decode())
        elif kind == PACKET:
            interface, high, low, captured, original = struct.unpack_from("<IIIII", body)
            assert captured <= original, "more was captured than there was"
            options = options_in(body[20 + (captured + 3) // 4 * 4:])
            direction = struct.unpack("<I", options[FLAGS])[0] & 3
            assert direction in (1, 2), "neither received nor sent"
            capture.packets.append(Packet(
                capture.interfaces[interface], high << 32 | low, bytes(body[20:20 + captured]), original,
                direction == 2, bytes(options.get(COMMENT, b"")).decode()))
        elif kind == STATISTICS:
            interface = struct.unpack_from("<I", body)[0]
            options = options_in(body[12:])
            capture.statistics[capture.interfaces[interface]] = (
                struct.unpack("<Q", options[RECEIVED])[0], struct.unpack("<Q", options[DROPPED])[0],
                bytes(options.get(COMMENT, b"")).decode())
        else:
            raise AssertionError(f"a block of type {kind}")
    return capture
