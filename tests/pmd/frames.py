# SPDX-License-Identifier: BSD-3-Clause
"""What QEMU has written down of a cable between two adapters (filter-dump): each frame must be one that Ethernet
carries, and each RoCE packet whole, with the ICRC that belongs to it."""

import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "hosts"))
from icrc import ETHERNET_BYTES, fault_of, is_roce  # noqa: E402

HEADER, RECORD = struct.Struct("<IHHiIII"), struct.Struct("<IIII")
MAGIC = 0xA1B2C3D4
LEAST_BYTES = 60
FAULTS_TOLD = 5


def frames_of(path):
    """Its frames, and how long they were; a file that is still being written ends in the midst of one."""
    data = path.read_bytes()
    if len(data) < HEADER.size or HEADER.unpack_from(data)[0] != MAGIC:
        raise ValueError(f"{path} is no pcap file")
    at = HEADER.size
    while at + RECORD.size <= len(data):
        _, _, kept, length = RECORD.unpack_from(data, at)
        at += RECORD.size
        if at + kept > len(data):
            return
        yield data[at:at + kept], length
        at += kept


def look_at(path, most_bytes):
    """(frames, RoCE frames, longest, what is wrong): none may be longer than an IP packet of most_bytes makes."""
    count = of_roce = longest = 0
    faults = []
    for frame, length in frames_of(path):
        count += 1
        longest = max(longest, length)
        if length < LEAST_BYTES:
            faults.append(f"frame {count} has {length} bytes")
        elif length > ETHERNET_BYTES + most_bytes:
            faults.append(f"frame {count} has {length} bytes, over MTU {most_bytes}")
        elif len(frame) == length and is_roce(frame):
            of_roce += 1
            fault = fault_of(frame)
            if fault is not None:
                faults.append(f"frame {count}: {fault}")
    return count, of_roce, longest, faults[:FAULTS_TOLD]
