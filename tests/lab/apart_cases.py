# SPDX-License-Identifier: BSD-3-Clause
"""Mistakes and troubles whose two ends are on two hosts, each with a hostnicd of its own (hostnic-mistakes-apart,
hostnic doctor --to): the line that the end which has the trouble says by itself, with what the other host tells of it."""

import re

from harness import Case
from hosts_cases import users
from mistake_cases import says

PROGRAM = "tests/apps/hostnic-mistakes-apart"
HOST = r"host 10\.77\.0\.1 says: "

# The mistake, and the line about it at the client. {NAME} stands for a fact of the run, which the client prints.
MISTAKES = {
    "wrong-rkey": HOST + r"rkey {key} is of no region of hnic0: wrong, or deregistered",
    "revoked-rkey": HOST + r"rkey {key} is of no region of hnic0: wrong, or deregistered",
    "beyond-region": HOST + r"region {region}\+65536 \(rkey .*\) ends 1 byte before the request's end",
    "before-region": HOST + r"region {region}\+65536 \(rkey .*\) begins 16 bytes behind the request's begin",
    "no-remote-write": HOST + r"region 0x\w+\+65536 \(rkey .*\) lacks REMOTE_WRITE",
    "qp-without-right": HOST + r"QP {peer} of hnic0 lacks REMOTE_WRITE",
    "receive-too-short": HOST + r"the message has 101 bytes, and the receive posted at QP {peer} of hnic0 has room for 100",
    "wrong-qpn": HOST + r"there is no QP 0x\w+ on hnic0, or it has another peer; QP {peer} there names yours as its peer",
    "wrong-psn": HOST + r"requests begin at PSN 1000 here \(sq_psn\), and QP {peer} of hnic0 expects them from 2000 on",
    "peer-in-reset": HOST + r"QP {peer} of hnic0 is in RESET",
    "peer-in-init": HOST + r"QP {peer} of hnic0 is in INIT",
    "peer-of-another": HOST + r"QP {peer} of hnic0 names QP 0x991334 as its peer",
    "other-type": HOST + r"QP {peer} of hnic0 is of type UC, and this one of type RC",
    "mtu-of-both-ends": HOST + r"path MTU 1024 at the requester, 512 at QP {peer} of hnic0",
    "too-many-reads": HOST + r"max_rd_atomic is 8 here, and max_dest_rd_atomic 1 at QP {peer} of hnic0",
    "no-receive": r"RNR retry counter exceeded.*\(rnr_retry 2\): " + HOST + r"QP {peer} of hnic0 has no receive posted",
    "rnr-for-ever": r"RNR for [\d.]+ s: " + HOST + r"QP {peer} of hnic0 has no receive posted",
    "peer-killed": HOST + r"QP {peer} of hnic0 is gone: hostnic-mistake \(pid {pid}\) ended, or was killed",
    "peer-stopped": r"RNR for .*" + HOST + r".*\(pid {pid}, which is stopped",
    "nobody-sends": r"its receives have waited .*" + HOST + r"QP {peer} of hnic0, its peer, has sent nothing yet",
}
OTHER_TRANSPORT = HOST + r"QP {peer} of hnic0 speaks the native transport, and this one RoCE"
NOBODY = r"no host answers at 10\.77\.0\.99 \(no ARP|ibv_modify_qp: .*10\.77\.0\.99"
# NICs' keys by which host 2 speaks the standard's transport to host 1, and host 1 does not to host 2.
UNEQUAL = ["--nic", "roce_peers=10.77.0.1/32"]
# What the lab does to the network or the far hostnicd, and what is said then.
TROUBLES = {
    "hostnicd gone": ("hostnic on 1 -- hostnic ctl quit",
                      r"nobody listens on UDP port 4791 of 10\.77\.0\.1 .*hostnicd has ended"),
    "firewall on 4791": ("hostnic on 1 -- hostnic ctl set impair hnic0 rx drop 100%",
                         r"host 10\.77\.0\.1 is up, and nothing comes back from its UDP port 4791: a firewall"),
    "hostnicd stopped": ("hostnic on 1 -- hostnic ctl stop",
                         r"host 10\.77\.0\.1 is up, and nothing comes back from its UDP port 4791: a firewall"),
}


def apart(user, name, port, meanwhile="", lab=()):
    """The client's status is the lab's; the server is ended with the lab."""
    number = user.maker.next_port()
    program = user.place(PROGRAM)
    client = f"hostnic on 2 -- {program} --connect 10.77.0.1 {number} {name}"
    line = f"hostnic on 1 -- {program} --listen {number} {name} & {client}"
    if meanwhile:
        line = (f"f=$(mktemp); hostnic on 1 -- {program} --listen {number} {name} & {client} > $f & client=$!; "
                f"until grep -q ready $f; do sleep 0.1; done; {meanwhile}; wait $client; cat $f; rm $f")
    return user.lab(["--hosts", "2", "--port", port, *lab], ["sh", "-c", line])


def probe_cases(user):
    def doctor(title, before, lines, status, lab=(), to="10.77.0.1"):
        command = f"{before}hostnic on 2 -- hostnic doctor --to {to}; echo status $?"

        def check(output):
            missing = [line for line in lines if not re.search(line, output, re.MULTILINE)]
            if missing:
                return f"no line matches {missing[0]!r}"
            # What the machine lacks is the same in all of them.
            said = 0 if re.search(r"^TO DO", output.split("UDP 4791", 1)[0].rpartition("\n")[0], re.MULTILINE) else 1
            return None if f"status {status}" in output or not said else f"another status than {status}"
        return user.case(f"doctor --to: {title}", user.lab(["--hosts", "2", *lab], ["sh", "-c", command]), check, limit_s=60)

    yield doctor("all is fine", "", [r"^fine  UDP 4791", r"^fine  host +10\.77\.0\.1 is hostnic \d",
                                     r"^fine  transport +native", r"^fine  path MTU +1024"], 0)
    yield doctor("a larger MTU", "", [r"^fine  path MTU +4096"], 0, ["--mtu", "9000"])
    yield doctor("an address of IPv6", "".join(f"hostnic on {host} -- ip -6 addr add fd00:77::{host}/64 dev eth0 nodad; "
                                               for host in (1, 2)) + "sleep 2; ",
                 [r"^fine  UDP 4791 +packets to \[?fd00:77::1\]? and answers pass", r"^fine  path MTU +1024"], 0, to="fd00:77::1")
    yield doctor("nobody is there", "", [r"^TO DO UDP 4791 +no host answers at 10\.77\.0\.99"], 1, to="10.77.0.99")
    yield doctor("another transport", "", [r"^TO DO transport +hnic0 speaks roce to 10\.77\.0\.1, which speaks hostnic"], 1,
                 UNEQUAL)
    yield doctor("a smaller path MTU", "hostnic on 1 -- ip link set eth0 mtu 1500; sleep 0.3; ",
                 [r"^TO DO path MTU +1024: packets of 4096 bytes, which hnic0 may send, don't arrive"], 1, ["--mtu", "9000"])
    if user.name != "root":
        return  # nobody's uid stands for others in a namespace, and gives no commands
    yield doctor("a closed port", "hostnic on 1 -- hostnic ctl quit; sleep 0.5; ",
                 [r"^TO DO UDP 4791 +nobody listens on UDP port 4791 of 10\.77\.0\.1"], 1)
    yield doctor("a firewall", "hostnic on 1 -- hostnic ctl set impair hnic0 rx drop 100%; ",
                 [r"^TO DO UDP 4791 +host 10\.77\.0\.1 is up, and nothing comes back"], 1)


def full_socket_case(user):
    """The far NIC is stopped while datagrams are sent to it, which no window holds back, and goes on then."""
    number = user.maker.next_port()
    program = f"ib_send_bw -F -c UD -s 1024 -D 4 -p {number}"
    line = (f"hostnic on 1 -- {program} >/dev/null & "
            f"(for i in $(seq 100); do hostnic on 2 -- {program} host1 >/dev/null 2>&1 && break; sleep 0.1; done) & client=$!; "
            "sleep 3; hostnic on 1 -- hostnic ctl stop; sleep 1; hostnic on 1 -- hostnic ctl start; sleep 0.5; "
            "hostnic on 1 -- hostnic doctor; hostnic on 1 -- hostnic errors; wait $client")
    told = (r"^TO DO UDP socket +packets found it full \(hnic0: \d+\)", r"hnic0: \d+ packets found the UDP socket full, of \d+ bytes")
    return user.case("names the trouble: a full socket buffer", user.lab(["--hosts", "2"], ["sh", "-c", line]),
                     lambda output: next((f"no line matches {each!r}" for each in told
                                          if not re.search(each, output, re.MULTILINE)), None), limit_s=90)


def other_session_case(maker):
    """A hostnicd that was started by another session, whose socket is elsewhere."""
    line = ("d=$(mktemp -d); mkdir -p $d/a $d/b; unset HOSTNIC_SOCKET; "
            f"XDG_RUNTIME_DIR=$d/a {maker.build}/hostnicd --nics 1 > $d/log 2>&1 & hostnicd=$!; "
            "for i in $(seq 200); do test -S $d/a/hostnic/hostnicd.sock && break; sleep 0.1; done; "
            f"XDG_RUNTIME_DIR=$d/b {maker.build}/hostnic doctor; echo status $?; echo in $d; kill $hostnicd; wait; rm -r $d")

    def check(output):
        place = re.search(r"^in (.*)$", output, re.MULTILINE)
        wanted = (rf"^TO DO hostnicd +nobody listens on {place[1]}/b/hostnic/hostnicd.sock; another session's hostnicd does on "
                  rf".*{place[1]}/a/hostnic/hostnicd.sock")
        return None if re.search(wanted, output, re.MULTILINE) and "status 1" in output else f"no line matches {wanted!r}"
    return Case("names the trouble: another session's hostnicd", ["sh", "-c", line], 60, True, check)


def apart_cases(maker):
    yield other_session_case(maker)
    for user in users(maker, PROGRAM):
        for name, pattern in MISTAKES.items():
            yield user.case(f"names the mistake, of another host: {name}", apart(user, name, "udp"), says(pattern),
                            quick=name in ("wrong-rkey", "wrong-psn"), limit_s=60)
        for name in ("wrong-psn", "beyond-region", "peer-in-reset"):
            yield user.case(f"names the mistake, of another host: {name}, af_packet", apart(user, name, "af_packet"),
                            says(MISTAKES[name]), limit_s=60)
        for port in ("udp", "af_packet"):
            yield user.case(f"names the mistake, of another host: other-transport, {port}",
                            apart(user, "other-transport", port, lab=UNEQUAL), says(OTHER_TRANSPORT), limit_s=60)
            yield user.case(f"names the mistake, of another host: nobody-at-gid, {port}",
                            apart(user, "nobody-at-gid", port), says(NOBODY), limit_s=60)
        for name, (meanwhile, pattern) in TROUBLES.items() if user.name == "root" else ():
            yield user.case(f"names the trouble of the network: {name}", apart(user, "writes", "udp", meanwhile),
                            says(pattern), limit_s=60)
        yield from probe_cases(user)
        if user.name == "root":
            yield full_socket_case(user)
