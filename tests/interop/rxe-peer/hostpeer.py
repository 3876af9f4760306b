#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A RoCEv2 peer that is a plain process: it speaks to a guest's rxe over the tap by AF_PACKET alone.

It has an IP and a MAC address of its own, which no kernel knows, answers ARP for them, and talks to
one RC queue pair of the guest (rxe-qp, which leaves its numbers in --qp-file). It sends and
acknowledges SENDs, does an RDMA WRITE and an RDMA READ of three packets each, and last a READ with
a wrong rkey. Of every frame from rxe it checks the ICRC and notes the header habits. Run it in the
network namespace of the tap; selftest.sh does. One line per step; exit status 0 if all went well.
"""
import argparse
import json
import os
import socket
import struct
import sys
import time
import zlib

ROCE_PORT = 4791
QPN = 0x123            # of this side, told to rxe-qp as --remote-qpn
FIRST_PSN = 0xfffff0   # of this side, told to rxe-qp as --remote-psn: it wraps early on
MTU = 1024
RESEND_S = 0.3         # long: the guest shares two busy cores with others
TRIES = 10

# RC opcodes
SEND_ONLY = 0x04
WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST = 0x06, 0x07, 0x08
READ_REQUEST, READ_FIRST, READ_MIDDLE, READ_LAST = 0x0c, 0x0d, 0x0e, 0x0f
ACKNOWLEDGE = 0x11
ACK_SYNDROME, NAK_SEQUENCE, NAK_REMOTE_ACCESS = 0x1f, 0x60, 0x62


def ones_sum(data):
    total = sum(struct.unpack('>%dH' % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return total


def icrc(ip, udp, bth_on):
    """The invariant CRC of a RoCEv2/IPv4 packet: mutable fields count as ones (`bth_on`: no ICRC)."""
    ip, udp, bth_on = bytearray(ip), bytearray(udp), bytearray(bth_on)
    ip[1] = ip[8] = 0xff                      # type of service, time to live
    ip[10:12] = udp[6:8] = b'\xff\xff'        # the two checksums
    bth_on[4] = 0xff                          # FECN, BECN, reserved
    return struct.pack('<I', zlib.crc32(b'\xff' * 8 + ip + udp + bth_on))


class Peer:
    def __init__(self, interface, ip, guest_ip):
        self.ip, self.guest_ip = socket.inet_aton(ip), socket.inet_aton(guest_ip)
        self.mac = b'\x02\x01' + self.ip
        self.guest_mac = None
        self.ident = 0
        self.habits = {}
        self.arp_answered = self.arp_answers = self.frames_in = 0
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.bind((interface, 0))

    def arp(self, operation, target_mac, target_ip):
        body = struct.pack('>HHBBH6s4s6s4s', 1, 0x800, 6, 4, operation, self.mac, self.ip, target_mac, target_ip)
        to = target_mac if operation == 2 else b'\xff' * 6
        self.socket.send(to + self.mac + b'\x08\x06' + body)

    def receive(self, wait_s):
        """The next RoCEv2 packet for us as (opcode, psn, rest after the BTH), or None. Answers ARP."""
        deadline = time.monotonic() + wait_s
        while (left := deadline - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                frame, source = self.socket.recvfrom(16384)
            except socket.timeout:
                return None
            if source[2] == socket.PACKET_OUTGOING:
                continue
            if frame[12:14] == b'\x08\x06' and len(frame) >= 42:
                operation, = struct.unpack('>H', frame[20:22])
                if frame[28:32] == self.guest_ip:
                    self.guest_mac = frame[22:28]
                if operation == 1 and frame[38:42] == self.ip:
                    self.arp(2, frame[22:28], frame[28:32])
                    self.arp_answered += 1
                elif operation == 2:
                    self.arp_answers += 1
            elif (frame[:6] == self.mac and frame[12:15] == b'\x08\x00\x45' and frame[23] == 17 and
                  frame[26:34] == self.guest_ip + self.ip and frame[36:38] == struct.pack('>H', ROCE_PORT)):
                return self.parse(frame)
        return None

    def parse(self, frame):
        ip, udp = frame[14:34], frame[34:42]
        total, ident, fragment = struct.unpack('>HHH', ip[2:8])
        packet = frame[42:14 + total]
        if icrc(ip, udp, packet[:-4]) != packet[-4:]:
            raise SystemExit('hostpeer: bad ICRC in a frame from rxe: ' + frame.hex())
        self.frames_in += 1
        opcode, flags, _, qpn, psn = struct.unpack('>BBHII', packet[:12])
        if qpn & 0xffffff != QPN:
            raise SystemExit('hostpeer: frame for QPN %#x' % qpn)
        for habit, value in (('UDP checksum', udp[6] << 8 | udp[7]), ('DF', fragment >> 14 & 1), ('TTL', ip[8]),
                             ('IP ID', 'zero' if not ident else 'not zero'), ('MigReq', flags >> 6 & 1),
                             ('PKey', packet[2] << 8 | packet[3])):
            self.habits.setdefault(habit, set()).add(value)
        pad = flags >> 4 & 3
        return opcode, psn & 0xffffff, packet[12:len(packet) - 4 - pad]

    def send(self, opcode, psn, qpn, rest=b'', ack_request=False):
        pad = -len(rest) % 4
        psn_word = (ack_request << 31) | (psn & 0xffffff)
        packet = struct.pack('>BBHII', opcode, pad << 4, 0xffff, qpn, psn_word) + rest + bytes(pad)
        self.ident = self.ident % 0xffff + 1
        udp = struct.pack('>HHHH', 0xc000 | QPN, ROCE_PORT, 8 + len(packet) + 4, 0)
        ip = bytearray(struct.pack('>BBHHHBBH4s4s', 0x45, 0, 28 + len(packet) + 4, self.ident, 0x4000, 64, 17, 0,
                                   self.ip, self.guest_ip))
        ip[10:12] = struct.pack('>H', ~ones_sum(bytes(ip)) & 0xffff)
        self.socket.send(self.guest_mac + self.mac + b'\x08\x00' + ip + udp + packet + icrc(ip, udp, packet))


class Connection:
    """Our side of the RC connection: requester and responder. One message at a time; go-back-N."""

    def __init__(self, peer, remote):
        self.peer, self.remote = peer, remote
        self.psn = FIRST_PSN            # of our next request
        self.expected = remote['psn']   # of rxe's next request
        self.messages = []              # that rxe sent
        self.msn = 0
        self.outstanding = []           # packets of our request, until it is answered
        self.resent = 0

    def request(self, opcode, rest, ack_request, psns=1):
        """Sends one packet of a request. Returns its PSN."""
        packet = (opcode, self.psn, self.remote['qpn'], rest, ack_request)
        self.outstanding.append(packet)
        self.peer.send(*packet)
        psn, self.psn = self.psn, (self.psn + psns) & 0xffffff
        return psn

    def resend(self):
        self.resent += 1
        for packet in self.outstanding:
            self.peer.send(*packet)

    def answer(self, psn):
        """Waits for rxe's answer with this PSN, (opcode, rest). Serves its SENDs and resends meanwhile."""
        for _ in range(TRIES):
            deadline = time.monotonic() + RESEND_S
            while packet := self.peer.receive(deadline - time.monotonic()):
                opcode, got_psn, rest = packet
                if self.serve(*packet):
                    continue
                if opcode == ACKNOWLEDGE and (rest[0] == NAK_SEQUENCE or rest[0] >> 5 == 1):
                    time.sleep(0.01 if rest[0] >> 5 == 1 else 0)   # 1: receiver not ready
                    break
                if got_psn == psn:   # others answer what we sent twice
                    return opcode, rest
            self.resend()
        raise SystemExit('hostpeer: no answer from rxe to PSN %#x, sent %d times' % (psn, TRIES))

    def serve(self, opcode, psn, rest):
        if opcode != SEND_ONLY:
            return False
        if psn == self.expected:        # else a repetition, which is only acknowledged again
            self.expected = (psn + 1) & 0xffffff
            self.msn += 1
            self.messages.append(rest)
        self.peer.send(ACKNOWLEDGE, psn, self.remote['qpn'], struct.pack('>I', ACK_SYNDROME << 24 | self.msn))
        return True

    def expect_ack(self, psn, syndrome):
        opcode, rest = self.answer(psn)
        if (opcode, rest[0]) != (ACKNOWLEDGE, syndrome):
            raise SystemExit('hostpeer: expected ACK of %#x with %#x, got opcode %#x %s'
                             % (psn, syndrome, opcode, rest[:4].hex()))
        self.outstanding = []

    def reth(self, offset, length, rkey=None):
        return struct.pack('>QII', self.remote['va'] + offset, self.remote['rkey'] if rkey is None else rkey, length)

    def echo(self, count):
        start_s = time.monotonic()
        for i in range(count):
            payload = bytes((i + k) & 0xff for k in range(i * 37 % (MTU + 1)))
            psn = self.request(SEND_ONLY, payload, True)
            self.expect_ack(psn, ACK_SYNDROME)
            deadline = time.monotonic() + RESEND_S * TRIES
            while len(self.messages) <= i:
                packet = self.peer.receive(deadline - time.monotonic())
                if packet is None:
                    raise SystemExit('hostpeer: no echo of message %d' % i)
                self.serve(*packet)
            if self.messages[i] != payload:
                raise SystemExit('hostpeer: message %d came back different' % i)
        return '%.0f us each' % ((time.monotonic() - start_s) * 1e6 / max(count, 1))

    def write(self, offset, data):
        parts = [data[i:i + MTU] for i in range(0, len(data), MTU)]
        self.request(WRITE_FIRST, self.reth(offset, len(data)) + parts[0], False)
        for part in parts[1:-1]:
            self.request(WRITE_MIDDLE, part, False)
        psn = self.request(WRITE_LAST, parts[-1], True)
        self.expect_ack(psn, ACK_SYNDROME)

    def read(self, offset, length):
        parts = (length + MTU - 1) // MTU
        psn = self.request(READ_REQUEST, self.reth(offset, length), True, psns=parts)
        data = b''
        for i in range(parts):
            opcode, rest = self.answer((psn + i) & 0xffffff)
            wanted = READ_FIRST if i == 0 else READ_LAST if i == parts - 1 else READ_MIDDLE
            if opcode != wanted:
                raise SystemExit('hostpeer: READ response %d has opcode %#x' % (i, opcode))
            data += rest if opcode == READ_MIDDLE else rest[4:]   # the others have an AETH
        self.outstanding = []
        return data


def wait_for_queue_pair(peer, path, wait_s):
    deadline = time.monotonic() + wait_s
    while not os.path.exists(path):
        peer.receive(0.05)
        if time.monotonic() > deadline:
            raise SystemExit('hostpeer: no queue pair in the guest after %d s' % wait_s)
    with open(path) as lines:
        return json.loads(lines.readline())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--interface', required=True, help='the tap')
    parser.add_argument('--ip', required=True, help='the address that this process has')
    parser.add_argument('--guest-ip', required=True)
    parser.add_argument('--qp-file', required=True, help="rxe-qp's --out, seen from here")
    parser.add_argument('--count', type=int, default=200, help='SENDs to and fro')
    parser.add_argument('--numbers', action='store_true', help='only print what rxe-qp needs to know of this side')
    options = parser.parse_args()
    if options.numbers:
        print('--remote-ip %s --remote-qpn %#x --remote-psn %#x --mtu %d' % (options.ip, QPN, FIRST_PSN, MTU))
        return

    peer = Peer(options.interface, options.ip, options.guest_ip)
    remote = wait_for_queue_pair(peer, options.qp_file, 20)   # which asks for our MAC address
    peer.arp(1, bytes(6), peer.guest_ip)
    peer.receive(0.5)
    if not peer.arp_answers:
        raise SystemExit('hostpeer: the guest did not answer ARP')
    print('arp|answered the guest (%d), asked it, was answered' % peer.arp_answered)

    connection = Connection(peer, remote)
    print('send|%d SENDs to and fro, %s' % (options.count, connection.echo(options.count)), flush=True)
    data = bytes((i * 13 + 5) & 0xff for i in range(2 * MTU + 33))
    connection.write(0x8000, data)
    print('write|RDMA WRITE of %d bytes in 3 packets, acknowledged' % len(data), flush=True)
    if connection.read(0x8000, len(data)) != data:
        raise SystemExit('hostpeer: the RDMA READ gave other bytes than were written')
    print('read|RDMA READ of %d bytes in 3 packets, the same bytes' % len(data), flush=True)
    psn = connection.request(READ_REQUEST, connection.reth(0, 4, remote['rkey'] ^ 0xff), True)
    connection.expect_ack(psn, NAK_REMOTE_ACCESS)
    print('nak|READ with a wrong rkey, NAK %#x' % NAK_REMOTE_ACCESS)
    print('habits|%d frames, all ICRCs right, %d resent to rxe; %s' % (peer.frames_in, connection.resent, ', '.join(
        '%s %s' % (habit, '/'.join('%#x' % v if isinstance(v, int) and v > 64 else str(v) for v in sorted(values, key=str)))
        for habit, values in peer.habits.items())))


main()
