#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Captures all of a lab, and compares the packets with the counters of the NICs at the end: they say the same, to the
last packet, and the packets are such as a wire would carry.

  capture_counts.py HOSTNIC [OPTIONS OF LAB] -- OPTIONS OF pair.py, SERVER ---- CLIENT
"""

import collections
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import pcapng

PAIR = Path(__file__).resolve().parent / "pair.py"
ETHERNET, IPV4, UDP, BTH = 14, 20, 8, 12
ROCE_PORT = 4791
# Counters that are about what arrives, all of which are counted while a packet is dispatched. Those that may count
# later, when what was held is executed or an ACK leaves, are not among them.
OF_ARRIVALS = [
    "out_of_sequence", "packet_seq_err", "duplicate_request", "policy_mismatch", "out_of_window", "rnr_nak_received",
    "nak_received", "acks_received", "cnp_received", "stale_epoch", "reorder_full", "reorder_buffered",
    "rx_unknown_qp", "rx_wrong_tag", "rx_wrong_service", "rx_wrong_qkey", "management_received", "rx_parse_error",
    "rx_icrc_error", "rx_not_ours"]
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


def compare(capture, counters):
    """Lines about what does not agree."""
    if not any(p.sent for p in capture.packets) or all(p.sent for p in capture.packets):
        yield "nothing was sent, or nothing arrived"
    for nic in capture.interfaces:
        packets = [p for p in capture.packets if p.interface == nic]
        seen, not_kept, _ = capture.statistics[nic]
        if not_kept:
            yield f"{nic}: {not_kept} packets were not kept"
        if seen != len(packets):
            yield f"{nic}: {seen} packets were seen, {len(packets)} are in the file"
        counts, expected = counts_of(packets), counters[nic]
        names = ["tx_packets", "rx_packets", "retransmitted_packets", *OF_ARRIVALS]
        for side in ("rx", "tx"):
            names += [f"impair_{side}_{what}" for what in
                      ("dropped", "rate_dropped", "queue_dropped", "duplicated", "corrupted")]
        for name in names:
            if counts[name] != expected[name]:
                yield f"{nic}: {name}: {counts[name]} by the capture, {expected[name]} by the NIC"


def malformed_in(path):
    """What tshark finds malformed; None where there is no tshark."""
    try:
        done = subprocess.run(["tshark", "-r", path, "-Y", "_ws.malformed", "-T", "fields", "-e", "frame.number"],
                              capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def run(hostnic, lab, pair, directory):
    """Returns the paths of the capture and of the counters."""
    path, counters = directory / "lab.pcapng", directory / "counters"
    command = shlex.join([sys.executable, str(PAIR), *pair])
    script = f"{command} && {shlex.quote(hostnic)} ctl show counters > {counters}"
    subprocess.run([hostnic, "lab", "--capture", path, *lab, "--", "sh", "-c", script], check=True)
    return path, counters


def main():
    hostnic, *words = sys.argv[1:]
    divider = words.index("--")
    with tempfile.TemporaryDirectory() as directory:
        path, counters = run(hostnic, words[:divider], words[divider + 1:], Path(directory))
        return check(path, counters_in(counters.read_text()))


def check(path, counters):
    """Exit status."""
    capture = pcapng.read(path)
    wrong = list(compare(capture, counters))
    for number, packet in enumerate(capture.packets, 1):
        corrupted = "corrupted by" in packet.comment or "rx_icrc_error" in packet.comment
        if not corrupted and (reason := wrong_in(packet.bytes)) is not None:
            wrong.append(f"packet {number}: {reason}")
    malformed = malformed_in(path)
    if malformed:
        wrong.append(f"tshark: {len(malformed)} malformed packets, the first is {malformed[0]}")
    for line in wrong[:20]:
        print(f"WRONG {line}")
    print(f"{len(capture.packets)} packets compared" + ("" if malformed is None else ", by tshark, too"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
