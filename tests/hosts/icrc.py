# SPDX-License-Identifier: BSD-3-Clause
"""RoCEv2 packets as they are on a cable, and their ICRCs by another implementation than hostnic's:
InfiniBand annex A17 in ten lines, with zlib's CRC."""

import select
import socket
import struct
import time
import zlib

ETHERNET_BYTES = 14
IPV4, IPV6 = b"\x08\x00", b"\x86\xdd"
IP_BYTES = {IPV4: 20, IPV6: 40}
UDP_BYTES = 8
# What a router may change, by its place in the IP header: TOS, TTL and checksum; or traffic class,
# flow label (the version is left) and hop limit.
IP_MASKED = {IPV4: (1, 8, 10, 11), IPV6: (1, 2, 3, 7)}
ETH_P_ALL = 3


def icrc(packet, family=IPV4):
    """The ICRC that belongs to a packet, given from its IP header to the end of its pad."""
    masked = bytearray(b"\xff" * 8 + packet)
    udp = IP_BYTES[family]
    for at in (*IP_MASKED[family], udp + 6, udp + 7, udp + UDP_BYTES + 4):  # UDP checksum, FECN to reserved
        masked[8 + at] = 0xff
    if family == IPV6:
        masked[8] |= 0x0f
    return struct.pack("<I", zlib.crc32(masked))


def bth_of(frame):
    return ETHERNET_BYTES + IP_BYTES[frame[12:14]] + UDP_BYTES


def is_roce(frame):
    family = frame[12:14]
    if family not in IP_BYTES:
        return False
    protocol = frame[ETHERNET_BYTES + (9 if family == IPV4 else 6)]
    port = struct.unpack_from(">H", frame, ETHERNET_BYTES + IP_BYTES[family] + 2)[0]
    return protocol == socket.IPPROTO_UDP and port == 4791


def fault_of(frame):
    """None, or what is wrong with a RoCEv2 frame."""
    family = frame[12:14]
    total = struct.unpack_from(">H", frame, 16)[0] if family == IPV4 else \
        40 + struct.unpack_from(">H", frame, 18)[0]
    packet = frame[ETHERNET_BYTES:ETHERNET_BYTES + total]
    if len(packet) != total:
        return f"{len(packet)} bytes of {total}"
    if family == IPV4 and frame[20] & 0x40 == 0:
        return "without DF"
    if family == IPV6 and frame[60:62] == b"\0\0":
        return "without a UDP checksum, which IPv6 demands"
    expected, found = icrc(packet[:-4], family), packet[-4:]
    if expected != found:
        return (f"opcode {frame[bth_of(frame)]:#x}, {total} bytes, identification "
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
            if is_roce(frame):
                most -= 1
                yield frame


if __name__ == "__main__":
    import sys
    seen, opcodes = 0, {}
    for each in Capture(sys.argv[1]).frames(float(sys.argv[2]), int(sys.argv[3])):
        seen += 1
        opcodes[each[bth_of(each)]] = opcodes.get(each[bth_of(each)], 0) + 1
        if fault := fault_of(each):
            print(f"FAULT packet {seen}: {fault}")
            sys.exit(1)
    print(f"{seen} packets are right:",
          ", ".join(f"{count} of {opcode:#x}" for opcode, count in sorted(opcodes.items())))
