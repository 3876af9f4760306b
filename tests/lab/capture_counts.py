#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Captures all of a lab, and compares the packets with the counters of the NICs at the end: they say the same, to the
last packet, and the packets are such as a wire would carry.

  capture_counts.py HOSTNIC [OPTIONS OF LAB] -- OPTIONS OF pair.py, SERVER ---- CLIENT
  capture_counts.py HOSTNIC [OPTIONS OF LAB] -- COMMAND
"""

import collections
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import pcapng

PAIR = Path(__file__).resolve().parent / "pair.py"
ETHERNET, IPV4, UDP, BTH = 14, 20, 8, 12
IPPROTO_UDP = 17
BTH_AT = ETHERNET + IPV4 + UDP
NATIVE = {*range(0xC0, 0xC6), *range(0xE6, 0xEA)}
MRC_WRITES = range(0xC6, 0xCC)
MRC = {*MRC_WRITES, 0xD1, 0xD8, 0xD9, 0xDC, 0xDD, 0xDE}
ROCE_PORT = 4791
DISSECTOR = Path(__file__).resolve().parents[2] / "packaging" / "wireshark" / "hostnic.lua"
# Counters that are about what arrives, all of which are counted while a packet is dispatched. Those that may count
# later, when what was held is executed or an ACK leaves, are not among them.
OF_ARRIVALS = [
    "out_of_sequence", "packet_seq_err", "duplicate_request", "policy_mismatch", "out_of_window", "rnr_nak_received",
    "nak_received", "acks_received", "cnp_received", "stale_epoch", "reorder_full", "reorder_buffered",
    "rx_unknown_qp", "rx_wrong_tag", "rx_wrong_service", "rx_wrong_qkey", "management_received", "rx_parse_error",
    "rx_icrc_error", "rx_not_ours", "mrc_sacks_received", "mrc_nacks_received", "mrc_trimmed"]
LOST = re.compile(r"\bdropped by (rx|tx) impairment")


def counters_in(text):
    found = collections.defaultdict(collections.Counter)
    for line in text.splitlines():
        nic, name, value = line.split()
        found[nic][name] = int(value)
    return found


def icrc(frame):
    """Of a frame from its IPv4 header on, in a straightforward way."""
    ip = bytearray(frame[ETHERNET:-4])
    ip[1] = ip[8] = ip[10] = ip[11] = 0xFF  # traffic class, hop limit, checksum
    ip[26] = ip[27] = 0xFF  # UDP checksum
    ip[32] = 0xFF  # FECN, BECN, reserved
    return zlib.crc32(bytes(8 * [0xFF]) + bytes(ip))


def wrong_in(frame):
    """Why a frame is none that a wire would carry; None: it is."""
    if struct.unpack_from(">H", frame, 12)[0] != 0x0800:
        return None  # ARP
    total, = struct.unpack_from(">H", frame, ETHERNET + 2)
    if total + ETHERNET != len(frame):
        return f"IPv4 says {total} bytes of {len(frame) - ETHERNET}"
    header = sum(struct.unpack_from(">10H", frame, ETHERNET))
    while header >> 16:
        header = (header & 0xFFFF) + (header >> 16)
    if header != 0xFFFF:
        return "the checksum of IPv4"
    if struct.unpack_from(">HH", frame, ETHERNET + IPV4 + 2) != (ROCE_PORT, total - IPV4):
        return "UDP's port or length"
    if (total - IPV4 - UDP - BTH) % 4 != 0:
        return "not of whole words"
    if icrc(frame) != struct.unpack_from("<I", frame, len(frame) - 4)[0]:
        return "the ICRC"
    return None


def is_foreign(packet):
    """Whether it is for the machine and not for the NIC: both arrive at a packet socket. An acknowledged sequence number
    of TCP lies where the BTH has its opcode."""
    return not packet.sent and (packet.bytes[12:14] != b"\x08\x00" or packet.bytes[ETHERNET + 9] != IPPROTO_UDP or
                                packet.bytes[ETHERNET + IPV4 + 2:BTH_AT - 4] != ROCE_PORT.to_bytes(2, "big"))


def is_corrupt(packet):
    """Whether a packet says who knows what."""
    return "corrupted by" in packet.comment or "rx_icrc_error" in packet.comment


def is_cut_off(packet):
    """Whether a switch has left headers only, in which there is no ICRC."""
    return "mrc_trimmed" in packet.comment


def counts_of(packets):
    """Counts the packets of one NIC under the names of its counters."""
    counts = collections.Counter()
    for packet in packets:
        words, _, changes = packet.comment.partition(" [")
        lost = LOST.search(words)
        copy = words.startswith("copy made")
        side = "tx" if packet.sent else "rx"
        counts[f"impair_{side}_duplicated"] += copy
        if lost:
            assert lost.group(1) == side, packet.comment
            full = "its queue" in words
            none = "no room" in words
            counts[f"impair_{side}_{'rate_' if full else 'queue_' if none else ''}dropped"] += 1
        counts[f"impair_{side}_corrupted"] += "corrupted by" in words
        if packet.sent:
            counts["tx_packets"] += not lost
            counts["retransmitted_packets"] += "retransmission" in words and not copy
        else:
            counts["rx_packets"] += not copy
        for change in filter(None, changes.rstrip("]").split(", ")):
            name, by = change.rsplit(" ", 1)
            counts[name] += int(by)
    return counts


def counters_meanwhile(comment):
    """What hostnicd says that has changed between the first and the last packet."""
    words, _, changes = comment.partition(": ")
    assert words == "counters meanwhile", comment
    return collections.Counter({name: int(by) for name, by in (each.rsplit(" ", 1) for each in changes.split(", "))})


def compare(capture, counters):
    """Lines about what does not agree. `counters` are the NICs' at the end; None: only what they changed by is known."""
    if not any(p.sent for p in capture.packets) or all(p.sent for p in capture.packets):
        yield "nothing was sent, or nothing arrived"
    for nic in capture.interfaces:
        packets = [p for p in capture.packets if p.interface == nic]
        seen, not_kept, comment = capture.statistics[nic]
        if not_kept:
            yield f"{nic}: {not_kept} packets were not kept"
        if seen != len(packets):
            yield f"{nic}: {seen} packets were seen, {len(packets)} are in the file"
        counts = counts_of(packets)
        names = ["tx_packets", "rx_packets", "retransmitted_packets", *OF_ARRIVALS]
        expected = counters_meanwhile(comment)
        yield from (f"{nic}: {name}: {counts[name]} by the capture, {expected[name]} by hostnicd meanwhile"
                    for name in names if counts[name] != expected[name])
        if counters is None:
            continue
        expected = counters[nic]
        for side in ("rx", "tx"):
            names += [f"impair_{side}_{what}" for what in
                      ("dropped", "rate_dropped", "queue_dropped", "duplicated", "corrupted")]
        for name in names:
            if counts[name] != expected[name]:
                yield f"{nic}: {name}: {counts[name]} by the capture, {expected[name]} by the NIC"


def frames_where(path, expression, *options):
    """The numbers of the frames of which tshark says so."""
    # tshark takes payloads of the standard's SENDs for NFS, where they look a little like it.
    options = ("--disable-protocol", "rpcordma", *options)
    done = subprocess.run(["tshark", *options, "-r", path, "-Y", expression, "-T", "fields", "-e", "frame.number"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "lua" not in done.stderr.lower().replace("hostnic.lua", ""), done.stderr
    return [int(word) for word in done.stdout.split()]


def wrong_by_tshark(path, capture):
    """Lines about what tshark does not understand, without the dissector of hostnic's transports and with it."""
    dissector = ("-X", f"lua_script:{DISSECTOR}")
    for options in ((), dissector):
        expression = "_ws.malformed || hostnic.short || mrc.short" if options else "_ws.malformed"
        if malformed := [n for n in frames_where(path, expression, *options) if not is_corrupt(capture.packets[n - 1])]:
            yield f"tshark {' '.join(options)}: {len(malformed)} malformed packets, the first is {malformed[0]}"
    packets = {number: packet for number, packet in enumerate(capture.packets, 1)
               if not is_corrupt(packet) and not is_cut_off(packet) and not is_foreign(packet) and len(packet.bytes) > BTH_AT
               and packet.bytes[12:14] == b"\x08\x00"}
    for name, opcodes, field in (("native", NATIVE, "hostnic.icrc"), ("MRC's", MRC, "mrc.icrc")):
        expected = [number for number, packet in packets.items() if packet.bytes[BTH_AT] in opcodes]
        if not set(frames_where(path, field, *dissector)).issuperset(expected):
            yield f"the dissector does not show all of the {len(expected)} packets of {name} opcodes"
    # A first attempt is none that is sent again; later ones count up to 3, and from 0 again.
    expression = "hostnic.retransmission || mrc.retransmission"
    shown = {number for number in frames_where(path, expression, *dissector) if number in packets and packets[number].sent}
    again = {number for number, packet in packets.items() if packet.sent and "retransmission" in packet.comment}
    if shown - again:
        yield f"the dissector calls packet {min(shown - again)} a retransmission, the NIC does not"
    # MRC's say all of them.
    if not_shown := {number for number in again - shown if packets[number].bytes[BTH_AT] in MRC_WRITES}:
        yield f"the dissector does not call packet {min(not_shown)} a retransmission, the NIC does"


def run(hostnic, lab, command, directory):
    """Returns the paths of the capture and of the counters; None: hosts have none in common."""
    path, counters = directory / "lab.pcapng", directory / "counters"
    script = shlex.join([sys.executable, str(PAIR), *command] if command[0].startswith("--") else command)
    if "--hosts" in lab:
        counters = None
    else:
        script += f" && {shlex.quote(hostnic)} ctl show counters > {counters}"
    subprocess.run([hostnic, "lab", "--capture", path, *lab, "--", "sh", "-c", script], check=True)
    return path, counters


def main():
    hostnic, *words = sys.argv[1:]
    divider = words.index("--")
    with tempfile.TemporaryDirectory() as directory:
        path, counters = run(hostnic, words[:divider], words[divider + 1:], Path(directory))
        return check(path, None if counters is None else counters_in(counters.read_text()))


def check(path, counters):
    """Exit status."""
    capture = pcapng.read(path)
    wrong = list(compare(capture, counters))
    for number, packet in enumerate(capture.packets, 1):
        if not is_foreign(packet) and not is_corrupt(packet) and not is_cut_off(packet) and (reason := wrong_in(packet.bytes)) is not None:
            wrong.append(f"packet {number}: {reason}")
    has_tshark = shutil.which("tshark") is not None
    if has_tshark:
        wrong += wrong_by_tshark(path, capture)
    for line in wrong[:20]:
        print(f"WRONG {line}")
    print(f"{len(capture.packets)} packets compared" + (", by tshark, too" if has_tshark else ""))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
