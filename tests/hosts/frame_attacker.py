#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A host that sends two others what they should not take: frames that they have exchanged, old ones,
changed ones, mostly with the ICRC that belongs to them, in the name of either or in its own.

  frame_attacker.py PLAN      a JSON object: interface, switch (namespace and ports, in the hosts' order),
                              hosts (address, mac, socket, honest process ids), hostnic, seed

It sees all that the hosts send, and so knows all that there is to know of a connection. So it changes
frames in a peer's name only for queue pairs of programs that nobody relies on; to the others it sends
frames as they were, frames from a stranger, and frames in the peer's name with what a blind attacker
would have to guess. It writes how many frames it has sent, once a second."""

import ctypes
import json
import os
import random
import re
import select
import socket
import struct
import subprocess
import sys
import time
from collections import deque

from icrc import bth_of, icrc, is_roce

IP, UDP, BTH, NETH = 14, 34, 42, 54
WRITE_ONLY, ACK = 0x0a, 0xe8
OPCODES = [WRITE_ONLY, *range(0xc0, 0xc6), *range(0xe6, 0xea), *range(0x20, 0x2c), 0x64, 0x65, 0x04, 0x0c, 0x10, 0x81]
CLONE_NEWNET = 0x40000000
REPLAYED_S = 1  # PSNs come round again
REFRESH_S = 0.5


def capture_in(namespace, interface):
    here = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        if libc.setns(there, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        taken = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        taken.bind((interface, 3))
        taken.setblocking(False)
        return taken
    finally:
        libc.setns(here, CLONE_NEWNET)
        os.close(here)
        os.close(there)


def ip_checksum(header):
    total = sum(struct.unpack(f">{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return total ^ 0xffff


def set_right(frame):
    """Lengths, checksum and ICRC as they have to be."""
    struct.pack_into(">H", frame, IP + 2, len(frame) - IP)
    struct.pack_into(">HH", frame, UDP + 4, len(frame) - UDP, 0)
    struct.pack_into(">H", frame, IP + 10, 0)
    struct.pack_into(">H", frame, IP + 10, ip_checksum(bytes(frame[IP:UDP])))
    frame[-4:] = icrc(bytes(frame[IP:-4]))


def qpn_of(frame):
    return int.from_bytes(frame[BTH + 5:BTH + 8], "big")


class Attacker:
    def __init__(self, plan):
        self.plan, self.chance = plan, random.Random(plan["seed"])
        self.wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.wire.bind((plan["interface"], 0))
        self.mac = self.wire.getsockname()[4]
        self.hosts = plan["hosts"]
        for host in self.hosts:
            host["ip"] = socket.inet_aton(host["address"])
            host["mac"] = bytes.fromhex(host["mac"].replace(":", ""))
        self.captures = [capture_in(plan["switch"]["namespace"], port) for port in plan["switch"]["ports"]]
        self.recent = deque(maxlen=4000)  # (when, frame)
        self.templates = {}  # opcode: frames, of any connection
        self.honest, self.others = [set(), set()], [set(), set()]
        self.refreshed = 0

    def refresh(self):
        """Whose queue pairs there are."""
        for which, host in enumerate(self.hosts):
            shown = [subprocess.run([self.plan["hostnic"], "ctl", "--socket", host["socket"], what], capture_output=True,
                                    text=True, check=False, timeout=60).stdout for what in ("show client", "show qp")]
            trusted = {client for client, pid in re.findall(r"^client (\d+) .* pid (\d+)", shown[0], re.M)
                       if int(pid) in host["honest"]}
            honest, others = set(), set()
            for qpn, client in re.findall(r" qp (0x[0-9a-f]+) .* client (\d+)", shown[1]):
                (honest if client in trusted else others).add(int(qpn, 16))
            self.honest[which], self.others[which] = honest, others
        self.refreshed = time.monotonic()

    def look(self):
        now = time.monotonic()
        for capture in select.select(self.captures, [], [], 0)[0]:
            for _ in range(200):
                try:
                    frame, where = capture.recvfrom(65536)
                except BlockingIOError:
                    break
                if where[2] != 4 and len(frame) >= BTH + 16 and frame[12:14] == b"\x08\x00" and is_roce(frame):
                    self.recent.append((now, frame))
                    self.templates.setdefault(frame[bth_of(frame)], deque(maxlen=64)).append(frame)
        while self.recent and self.recent[0][0] < now - REPLAYED_S:
            self.recent.popleft()

    def target_of(self, frame):
        return next((i for i, host in enumerate(self.hosts) if host["ip"] == bytes(frame[IP + 16:IP + 20])), None)

    def one(self):
        """A frame, or None."""
        kind = self.chance.randrange(10)
        if kind == 0 and self.recent:
            return self.chance.choice(self.recent)[1]
        if not self.templates:
            return None
        frame = bytearray(self.chance.choice(self.templates[self.chance.choice(list(self.templates))]))
        target = self.target_of(frame)
        if target is None:
            return None
        frame[0:6] = self.hosts[target]["mac"]
        if kind < 6:
            if qpn_of(frame) not in self.others[target]:
                if not self.others[target]:
                    return None
                frame[BTH + 5:BTH + 8] = self.chance.choice(sorted(self.others[target])).to_bytes(3, "big")
            frame = self.change(frame)
            if self.reaches_honest(frame, target):
                return None
        elif kind < 8:
            frame[IP + 12:IP + 16] = self.plan["own_ip"]
            frame = self.change(frame)
            if frame[IP + 12:IP + 16] != self.plan["own_ip"] and self.reaches_honest(frame, target):
                return None  # changed into a peer's
        else:
            if not self.honest[target] or frame[BTH] == WRITE_ONLY or frame[BTH] < 0xc0:
                return None
            frame[BTH + 5:BTH + 8] = self.chance.choice(sorted(self.honest[target])).to_bytes(3, "big")
            struct.pack_into(">H", frame, UDP, self.chance.randrange(1 << 16))
            frame[NETH + 1:NETH + 4] = self.chance.randbytes(3)
            frame[BTH + 9:BTH + 12] = self.chance.randbytes(3) if self.chance.randrange(2) else frame[BTH + 9:BTH + 12]
            set_right(frame)
        return bytes(frame)

    def reaches_honest(self, frame, target):
        """Changed in a peer's name: not for programs that count on their peer. Looked for as a parser would, also
        behind a VLAN tag."""
        return any(int.from_bytes(frame[at + 5:at + 8], "big") in self.honest[target] for at in (BTH, BTH + 4, BTH + 20))

    def change(self, frame):
        right = self.chance.randrange(4) != 0
        for _ in range(self.chance.choice([1, 1, 2, 4])):
            self.change_once(frame)
        if right:
            set_right(frame)
        if self.chance.randrange(30) == 0:  # the end is missing, headers and all
            return frame[:self.chance.randrange(14, len(frame))]
        return self.wrap(frame) if self.chance.randrange(12) == 0 else frame

    def change_once(self, frame):
        chance, way = self.chance, self.chance.randrange(12)
        if way == 0:
            frame[BTH] = chance.choice(OPCODES)
        elif way == 1:
            frame[BTH + 1] = chance.randrange(256)
        elif way == 2:
            frame[BTH + 8] = chance.randrange(256)
        elif way == 3:  # near the PSN that it was
            psn = int.from_bytes(frame[BTH + 9:BTH + 12], "big") + chance.choice([-1, 1, 2, 7, 100, 1023, 1024, -1000, 1 << 23])
            frame[BTH + 9:BTH + 12] = (psn & 0xffffff).to_bytes(3, "big")
        elif way == 4:  # a word of the extension headers: lengths, keys, addresses, bitmaps
            at = BTH + 12 + 4 * chance.randrange(12)
            word = chance.choice([0, 1, 0x7fffffff, 0x80000000, 0xffffffff, chance.randrange(1 << 32)])
            if at + 4 <= len(frame):
                struct.pack_into(">I", frame, at, word)
        elif way == 5:
            del frame[max(BTH + 16, len(frame) - chance.randrange(1, 200)):]
        elif way == 6:
            frame += chance.randbytes(chance.randrange(1, max(2, min(300, 1500 + IP - len(frame)))))
        elif way == 7:  # an IP header that is none
            frame[IP + chance.randrange(10)] = chance.randrange(256)
        elif way == 8:
            struct.pack_into(">H", frame, UDP + 2 * chance.randrange(4), chance.randrange(1 << 16))
        else:
            at = chance.randrange(IP, len(frame)) * 8 + chance.randrange(8)
            frame[at // 8] ^= 1 << at % 8

    def wrap(self, frame):
        way = self.chance.randrange(3)
        if way == 0:  # a VLAN
            return frame[:12] + b"\x81\x00" + self.chance.randbytes(2) + frame[12:]
        if way == 1:  # a fragment
            struct.pack_into(">H", frame, IP + 6, self.chance.choice([0x2000, 1, 0x2001, 185, 0x1fff]))
            struct.pack_into(">H", frame, IP + 10, 0)
            struct.pack_into(">H", frame, IP + 10, ip_checksum(bytes(frame[IP:UDP])))
            return frame
        return frame[:12] + b"\x86\xdd" + struct.pack(">IHBB", 6 << 28, len(frame) - UDP, 17, 64) + \
            self.chance.randbytes(32) + frame[UDP:]

    def run(self):
        sent, told = 0, time.monotonic()
        while True:
            if time.monotonic() - self.refreshed > REFRESH_S:
                self.refresh()
            self.look()
            for _ in range(100):
                frame = self.one()
                if frame is None:
                    continue
                try:
                    # From the own MAC address: a switch would learn that the peer has moved.
                    self.wire.send(frame[:6] + self.mac + frame[12:1514])
                    sent += 1
                except OSError:  # the interface's queue is full
                    time.sleep(0.001)
            if time.monotonic() - told > 1:
                told = time.monotonic()
                print(sent, flush=True)


def main():
    plan = json.loads(sys.argv[1])
    plan["own_ip"] = socket.inet_aton("10.0.0.3")
    Attacker(plan).run()


if __name__ == "__main__":
    main()
