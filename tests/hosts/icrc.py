# SPDX-License-Identifier: BSD-3-Clause
"""RoCEv2 packets as they are on a cable, and their ICRCs by another implementation than hostnic's:
InfiniBand annex A17 in ten lines, with zlib's CRC."""

import select
import socket
import struct
import time
import zlib

ETHERNET_BYTES, UDP_OFFSET, BTH_OFFSET = 14, 34, 42
ETH_P_ALL = 3


def icrc(packet):
    """The ICRC that belongs to a packet, given from its IPv4 header to the end of its pad."""
    masked = bytearray(b"\xff" * 8 + packet)
    for at in (1, 8, 10, 11, 26, 27, 32):  # TOS, TTL, IP checksum, UDP checksum, FECN to reserved
        masked[8 + at] = 0xff
    return struct.pack("<I", zlib.crc32(masked))


def fault_of(frame):
    """None, or what is wrong with a RoCEv2 frame."""
    total = struct.unpack_from(">H", frame, 16)[0]
    packet = frame[ETHERNET_BYTES:ETHERNET_BYTES + total]
    if len(packet) != total:
        return f"{len(packet)} bytes of {total}"
    if frame[20] & 0x40 == 0:
        return "without DF"
    expected, found = icrc(packet[:-4]), packet[-4:]
    if expected != found:
        return (f"opcode {frame[BTH_OFFSET]:#x}, {total} bytes, identification "
                f"{struct.unpack_from('>H', frame, 18)[0]}: ICRC {found.hex()}, not {expected.hex()}")
    return None


class Capture:
    """What passes an interface of the namespace that the caller is in."""

    def __init__(self, interface):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 26)
        self.socket.bind((interface, 0))

    def frames(self, seconds, most):
        """RoCEv2 frames, both ways, as they come."""
        end = time.monotonic() + seconds
        while most > 0 and (left := end - time.monotonic()) > 0:
            if not select.select([self.socket], [], [], left)[0]:
                return
            frame = self.socket.recv(65536)
            if frame[12:14] == b"\x08\x00" and frame[23] == socket.IPPROTO_UDP and \
                    struct.unpack_from(">H", frame, UDP_OFFSET + 2)[0] == 4791:
                most -= 1
                yield frame


if __name__ == "__main__":
    import sys
    seen, opcodes = 0, {}
    for each in Capture(sys.argv[1]).frames(float(sys.argv[2]), int(sys.argv[3])):
        seen += 1
        opcodes[each[BTH_OFFSET]] = opcodes.get(each[BTH_OFFSET], 0) + 1
        if fault := fault_of(each):
            print(f"FAULT packet {seen}: {fault}")
            sys.exit(1)
    print(f"{seen} packets are right:",
          ", ".join(f"{count} of {opcode:#x}" for opcode, count in sorted(opcodes.items())))
