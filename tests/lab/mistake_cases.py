# SPDX-License-Identifier: BSD-3-Clause
"""Mistakes that developers make, staged one by one (hostnic-mistakes), and the line that a lab says about each by itself: the
cause alone, with its name or number."""

import re

from harness import Case

PROGRAM = "tests/apps/hostnic-mistakes"

# The mistake, and the line about it. {NAME} stands for a fact of the run, which the program prints.
CALLS = {
    "no-grh": r"ibv_modify_qp: .*no GRH: .*ibv_rc_pingpong: -g 0",
    "gid-index": r"ibv_modify_qp: .*sgid_index 200: ",
    "missing-attribute": r"from INIT to RTR needs IBV_QP_MIN_RNR_TIMER \(EINVAL\)",
    "wrong-transition": r"no way leads from RESET to RTS",
    "send-in-init": r"ibv_post_send: .*in INIT",
    "receive-in-reset": r"ibv_post_recv: .*in RESET",
    "send-queue-full": r"send queue of 16 full, none of them signalled",
    "receive-queue-full": r"receive queue of 16 full",
    "shared-queue-full": r"shared receive queue of 16 full",
    "too-many-sges": r"5 scatter/gather elements, 2 granted",
    "inline-too-long": r"inline 2000, 512 granted",
    "cq-entries": r"ibv_create_cq: 100000000 completion queue entries: from 1 to \d+",
    "resize-cq": r"ibv_resize_cq: 100000000 completion queue entries: from 1 to \d+",
    "qp-limit": r"ibv_create_qp: max_send_wr is 100000, 16384 at most",
    "qp-type": r"ibv_create_qp: queue pairs of type 8 are not supported",
    "srq-limit": r"ibv_create_srq: max_wr is 100000, 16384 at most",
    "too-many-reads-wanted": r"max_rd_atomic is (100|more than)",
    "uc-read": r"opcode 5 .*no operation of this type",
    "uc-atomic": r"opcode 7 .*no operation of this type",
    "ud-too-long": r"SEND of 60000 bytes.*failed: .*(longer|4096)",
    "pd-in-use": r"ibv_dealloc_pd: .*1 queue pair.*1 memory region",
    "cq-in-use": r"ibv_destroy_cq: .*1 queue pair",
    "region-with-windows": r"ibv_dereg_mr: .*windows are bound",
    "remote-without-local": r"access flags 0x2: REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE",
    "unmapped-memory": r"{hole} is not mapped",
    "read-only-memory": r"{page} is not writable",
    "huge-region": r"a memory region of 4611686018427387904 bytes, \d+ at most",
    "implicit-odp": r"on-demand regions need bounds",
    "unknown-access": r"unknown access flags in 0x1000",
    "bind-without-right": r"bind .*failed: .*lacks MW_BIND|ibv_bind_mw: .*MW_BIND",
    "no-such-port": r"port_num 2: there is port 1",
    "mtu-beyond-the-port": r"path_mtu",
    "nobody-at-gid": r"ibv_modify_qp: .*127\.77\.0\.77",
    "cq-of-other-device": r"ibv_create_qp: send_cq is of another device, or destroyed \(ENOENT\)",
    "channel-of-other-device": r"ibv_create_cq: the completion channel is of another device",
    "channel-in-use": r"ibv_destroy_comp_channel: in use by 1 completion queue \(EBUSY\)",
    "srq-in-use": r"ibv_destroy_srq: in use by 1 queue pair \(EBUSY\)",
    "srq-limit-beyond": r"ibv_modify_srq: srq_limit is 100, and the queue has 16 entries",
    "cq-resized-below": r"ibv_resize_cq: 8 completions wait there, or are due, and 2 entries are asked for",
    "group-of-rc": r"ibv_attach_mcast: QP 0x\w+: the queue pair is not of type UD",
    "window-of-type-1": r"ibv_post_send: QP 0x\w+: the window is of type 1: .*IBV_WR_BIND_MW those of type 2",
    "negative-elements": r"num_sge is -1",
    "peer-qpn-0": r"dest_qp_num is 0, which is no program's queue pair",
}
FAILURES = {
    "wrong-rkey": r"WRITE of 8 bytes .*failed: remote access error.*rkey {key} is of no region of hnic1",
    "revoked-rkey": r"rkey {key} is of no region of hnic1: wrong, or deregistered",
    "beyond-region": r"region {region}\+65536 \(.*\) ends 1 byte before the request's end",
    "before-region": r"region {region}\+65536 \(.*\) begins 16 bytes behind the request's begin",
    "no-remote-write": r"region 0x\w+\+65536 \(.*\) lacks REMOTE_WRITE",
    "no-remote-read": r"region 0x\w+\+65536 \(.*\) lacks REMOTE_READ",
    "no-remote-atomic": r"region 0x\w+\+65536 \(.*\) lacks REMOTE_ATOMIC",
    "misaligned-atomic": r"address {va} of the atomic is no multiple of 8",
    "qp-without-right": r"QP 0x\w+ of hnic1 lacks REMOTE_WRITE",
    "region-of-other-pd": r"rkey {key} is of a region of another protection domain",
    "wrong-lkey": r"local protection error.*lkey {key} is of no region of hnic0",
    "sge-beyond-region": r"region {region}\+65536 \(.*\) ends 8 bytes before",
    "read-into-read-only": r"READ .*region 0x\w+\+65536 \(lkey .*\) lacks LOCAL_WRITE",
    "wrong-lkey-of-receive": r"receive .*failed: .*lkey {key} is of no region of hnic1",
    "receive-into-read-only": r"receive .*failed: .*region 0x\w+\+65536 \(.*\) lacks LOCAL_WRITE",
    "receive-too-short": r"the message has 101 bytes, and the receive posted at QP 0x\w+ of hnic1 has room for 100",
    "no-receive": r"RNR retry counter exceeded.*\(rnr_retry 2\): QP 0x\w+ of hnic1 has no receive posted",
    "mtu-of-both-ends": r"path MTU 1024 at the requester, 512 at QP 0x\w+ of hnic1",
    "too-many-reads": r"max_rd_atomic is 8 here, and max_dest_rd_atomic 1 at QP 0x\w+ of hnic1",
    "ah-of-other-pd": r"address handle is of another protection domain",
    "invalidate-wrong-rkey": r"SEND with invalidation .*failed: .*rkey {key}, to be invalidated, is of no memory window",
    "local-invalidate": r"rkey {key} is of no bound memory window",
    "cq-overrun": r"completion queue of 64 entries overflowed",
    "wrong-qpn": r"there is no QP {peer} on hnic1; QP 0x\w+ there names yours as its peer",
    "wrong-psn": r"requests begin at PSN 1000 here \(sq_psn\), and QP {peer} of hnic1 expects them from 2000 on",
    "peer-in-reset": r"QP {peer} of hnic1 is in RESET",
    "peer-in-init": r"QP {peer} of hnic1 is in INIT",
    "peer-of-another": r"QP {peer} of hnic1 names QP 0x991334 as its peer",
    "mtu-of-a-read": r"READ .*failed: bad response error.*: path MTU 256 here, 1024 at QP 0x\w+ of hnic1",
    "other-type": r"QP {peer} of hnic1 is of type UC, and this one of type RC",
    "peer-killed": r"QP 0x\w+ of hnic1 is gone: .*\(pid {decimal_pid}\) ended, or was killed",
}
WAITS = {
    "peer-stopped": r"RNR.*\(pid {decimal_pid}, which is stopped",
    "peer-stopped-before-its-answer":
        r"its receives have waited for [\d.]+ s: its peer's program, .*\(pid {decimal_pid}, which is stopped",
    "rnr-for-ever": r"RNR for [\d.]+ s.*QP 0x\w+ of hnic1 has no receive posted",
    "silent-for-long": r"no answer for [\d.]+ s \(\d+ .*\): QP {peer} of hnic1 is in RESET",
    "not-polled": r"16 completions .*not polled",
    "unsignalled": r"1 .*unsignalled",
    "not-armed": r"1 completion.*not armed|not armed.*1 completion",
    "nobody-sends": r"QP 0x\w+ of hnic0, its peer, has sent nothing|QP 0x\w+ of hnic1, its peer, has sent nothing",
    "wrong-qkey": r"1 datagram for it came with another Q_Key \(0x2222\) than its own, 0x11111111",
    "ud-no-room-for-grh": r"a datagram of 64 bytes was dropped: .*\(GRH\), so 104 are needed, and the receive has room for 64",
    "ud-wrong-qpn": r"hnic1 has dropped 1 datagram for queue pairs that it does not have, .*for QP {wrong}",
    "ud-no-receive": r"nothing has come for [\d.]+ s: 1 message for it was dropped, since no receive was posted",
    "ud-in-init": r"1 packet for it was dropped, since it is in INIT",
    "uc-wrong-psn": r"requests of QP 0x\w+ of hnic0, its peer, begin at PSN 5000 .*expected from 1000 on",
    "uc-wrong-rkey": r"a WRITE to it was dropped: rkey {key} is of no region of hnic1",
    "uc-receive-too-short": r"a message was dropped: it is longer than its receive, which has room for 16 bytes",
    "uc-mtu-of-both-ends": r"packets have 256 bytes, and its path MTU is 1024: both ends must agree",
    "solicited-only": r"1 completion has been there .*armed for solicited ones only",
    "event-not-acknowledged": r"ibv_destroy_cq waits until ibv_ack_cq_events has acknowledged all events: 1 were taken, 0 are acknowledged",
}
# What the wire does to a WRITE that nothing is wrong with.
WIRES = {
    "corrupt 100%": r"WRITE .*failed: .*did not come in time; \d+ came to hnic1 with a wrong ICRC: the wire corrupts them",
    "drop 100%": r"WRITE .*failed: .*did not come in time; on purpose, \d+ of those to hnic1 were dropped",
}
# It would stand still for ever, and SIGALRM ends it.
STANDS_STILL = {"event-not-acknowledged"}


def says(pattern):
    def check(output):
        wanted = pattern
        for name, value in re.findall(r"^fact (\w+)=(\S+)$", output, re.MULTILINE):
            wanted = wanted.replace("{" + name + "}", value)
        lines = [line for line in output.splitlines() if line.startswith("hostnic[")]
        named = [line for line in lines if re.search(wanted, line)]
        if not named:
            return f"no line matches {wanted!r}"
        # Both ends may say it; nobody says it twice.
        twice = {line for line in named if named.count(line) > 1}
        return f"said twice: {twice.pop()}" if twice else None

    return check


def prints(*patterns):
    """A check: each pattern is in the output, in this order."""

    def check(output):
        at = 0
        for pattern in patterns:
            found = re.compile(pattern).search(output, at)
            if found is None:
                return f"no {pattern!r} behind character {at}"
            at = found.end()
        return None

    return check


def explain_cases(maker):
    hostnic, mistakes = maker.build / "hostnic", maker.apps / PROGRAM
    refused = f"{mistakes} beyond-region; {hostnic} explain last; {hostnic} ctl 'show dead'"
    yield Case("hostnic explain last", maker.lab([], ["sh", "-c", refused]), 30, True, prints(
        r"hnic\d QP 0x\w+ \(RC\) of hostnic-mistakes \(pid \d+\), peer QP 0x\w+: went with its program .* in ERR",
        r"hnic\d QP 0x\w+ \(RC\) of hostnic-mistakes"))
    waits = f"{mistakes} peer-stopped-before-its-answer & sleep 2.5; {hostnic} explain $!; wait"
    yield Case("hostnic explain names a stopped peer", maker.lab([], ["sh", "-c", waits]), 30, True, prints(
        r"QP 0x\w+ \(RC, native transport\) of hostnic-mistakes \(pid \d+\): RTS", r"its peer's program, hostnic-mistakes "
        r"\(pid \d+, which is stopped"))
    yield Case("hostnic explain --vendor-err", [hostnic, "explain", "--vendor-err", "5"], 10, True,
               prints("IBV_WC_REM_ACCESS_ERR"))


# Mistakes of stock programs, each as a shell says it, and the line. {ON0} and {ON1} run a program on a NIC.
STOCK = {
    "rping, and nobody listens": ("{ON0} rping -c -a 127.77.0.2 -p 7178 -C 1",
        r"RDMA_CM_EVENT_REJECTED \(to 127\.77\.0\.2, port 7178\): nobody listens on that port"),
    "rping to nobody's address": ("{ON0} rping -c -a 127.77.0.9 -C 1",
        r"RDMA_CM_EVENT_ADDR_ERROR \(to 127\.77\.0\.9, port 7174\): no host has that address"),
    "rping at an address of another host": ("{ON0} rping -s -a 10.9.8.7 -C 1",
        r"rdma_bind_addr: 10\.9\.8\.7, port 7174: no NIC here has that address"),
    "udaddy, and nobody listens": ("{ON0} udaddy -s 127.77.0.2",
        r"RDMA_CM_EVENT_UNREACHABLE \(to 127\.77\.0\.2, port 7174\): nobody listens on that port"),
    "mckey without a group": ("{ON0} mckey -m 127.77.0.2",
        r"rdma_join_multicast: 127\.77\.0\.2: no multicast group"),
    "ibv_xsrq_pingpong": ("{ON0} ibv_xsrq_pingpong -g 0", r"ibv_open_xrcd: there is no XRC here"),
    "too few descriptors": ("ulimit -n 12; {ON0} ibv_rc_pingpong -g 0",
        r"hostnicd's answer has 5 descriptors, .*: this process may have 12 open \(ulimit -n\)"),
    "ibv_rc_pingpong at port 9": ("{ON0} ibv_rc_pingpong -g 0 -i 9", r"port_num 9: there is port 1"),
    "ibv_srq_pingpong with a long queue": ("{ON0} ibv_srq_pingpong -g 0 -r 100000",
        r"ibv_create_srq: max_wr is 100000, 16384 at most"),
}


def stock_cases(maker):
    hostnic = maker.build / "hostnic"
    for name, (command, pattern) in STOCK.items():
        for nic in range(2):
            command = command.replace(f"{{ON{nic}}}", f"{hostnic} run --device hnic{nic} --")
        yield Case(f"names the mistake of a stock program: {name}", maker.lab([], ["sh", "-c", command + "; true"]), 30, True,
                   says(pattern))


def terminal_cases(maker):
    """Outside of a lab, as by `hostnic run`: somebody sits at a terminal; elsewhere only a path that is none is named."""
    def both():
        pingpong = f"timeout 20 env -u HOSTNIC_LAB ibv_rc_pingpong -p {maker.next_port()}"
        return f"{pingpong} & sleep 1; {pingpong} localhost; wait; true"
    yield Case("names a mistake on a terminal", maker.lab([], ["script", "-qec", both(), "/dev/null"]), 60, True,
               says("no GRH: .*ibv_rc_pingpong: -g 0"))
    # Each program once, wherever its stderr goes.
    yield Case("names a missing GRH wherever", maker.lab([], ["sh", "-c", both()]), 60, True,
               lambda output: None if output.count("no GRH: ") in (1, 2) else "not once by those that come so far")
    silent = f"{maker.build / 'hostnic'} run --device hnic0 -- env -u HOSTNIC_LAB ibv_srq_pingpong -g 0 -r 100000; true"
    yield Case("names no other mistake unasked", maker.lab([], ["sh", "-c", silent]), 60, True,
               lambda output: None if "Couldn't create SRQ" in output and "max_wr" not in output else "something is said unasked")


def mistake_cases(maker):
    yield from explain_cases(maker)
    yield from terminal_cases(maker)
    yield from stock_cases(maker)
    lab = [maker.build / "hostnic", "lab", "--loss", "0.0001%", "--", maker.apps / PROGRAM, "receive-too-short"]
    summary = r"^hostnic lab: \d+ packets; the impairment hit nothing; .*; 1 requests refused$"
    yield Case("a lab sums up what happened", lab, 30, True, lambda output: (
        None if re.search(summary, output, re.MULTILINE) else "no summary"))
    for wire, pattern in WIRES.items():
        yield Case(f"names the trouble of the wire: {wire}", maker.lab(["--impair", wire], [maker.apps / PROGRAM, "writes"]), 30,
                   True, says(pattern))
    for name, pattern in {**CALLS, **FAILURES, **WAITS}.items():
        command = [maker.apps / PROGRAM, name]
        if name in STANDS_STILL:
            command = ["sh", "-c", f"{maker.apps / PROGRAM} {name}; test $? = 142"]
        yield Case(f"names the mistake: {name}", maker.lab([], command), 30, True, says(pattern))
