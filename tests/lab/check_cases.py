# SPDX-License-Identifier: BSD-3-Clause
"""`hostnic check`: each planted mistake (tests/check) is named, programs that make none have no finding, and what a run
of it says and returns."""

import re

from fault_cases import has_all
from harness import HERE, Case

# The mistake, what is said of it, and of which other place.
PLANTED = {
    "changed-send": ("changed-buffer", "SEND of 64 bytes .* changed between post and completion", "posted"),
    "changed-write": ("changed-buffer", "WRITE of 4096 bytes .* changed between", "posted"),
    "changed-built": ("changed-buffer", "SEND of 64 bytes .*wr_id 0x5", "posted"),
    "unmapped": ("unmapped-buffer", "SEND of 4096 bytes .* unmapped before its completion", "posted"),
    "region-of-receive": ("region-in-use", "a receive posted to QP 0x\\w+ uses it", "posted"),
    "region-of-send": ("region-in-use", "a SEND posted to QP 0x\\w+ uses it", "posted"),
    "stale-key": ("stale-key", "of a region that was deregistered", "deregistered"),
    "unknown-key": ("unknown-key", "of no region of this process", None),
    "other-domain": ("other-domain", "of another protection domain", "registered"),
    "outside-region": ("outside-region", "64 bytes at 0x\\w+ are not within their region, 8192 bytes", "registered"),
    "receive-without-right": ("no-local-write", "receive: 64 bytes .* without IBV_ACCESS_LOCAL_WRITE", "registered"),
    "read-without-right": ("no-local-write", "READ: 64 bytes .* without IBV_ACCESS_LOCAL_WRITE", "registered"),
    "never-signalled": ("queue-stuck", "is full \\(max_send_wr 16\\) and none of its requests is signalled", "created"),
    "small-cq": ("small-cq", "completions may come into a completion queue of \\d+ entries", "created"),
    "no-read-depth": ("no-read-depth", "a READ on QP 0x\\w+, which went to RTS with max_rd_atomic 0", "created"),
    "read-depth": ("read-depth", "max_rd_atomic 4\\), its peer takes 1 ", "created \\(peer\\)"),
    "no-receive": ("no-receive", "its peer has never posted a receive", "posted"),
    "misaligned-atomic": ("misaligned-atomic", "of the remote address 0x\\w+4\n", None),
    "short-atomic": ("short-atomic", "4 bytes for its result of 8", None),
    "no-grh-room": ("no-grh-room", "32 bytes on UD QP 0x\\w+: the first 40 are for the GRH", "created"),
    "send-in-init": ("qp-state", "a SEND is posted to QP 0x\\w+ in INIT", "created"),
    "receive-in-reset": ("qp-state", "a receive is posted to QP 0x\\w+ in RESET", "created"),
    "inline-too-long": ("inline-too-long", "65 bytes inline .* max_inline_data 64", "created"),
    "too-many-sges": ("too-many-sges", "64 SGEs are posted .* max_send_sge 2", "created"),
    "ignored-error": ("ignored-error", "16 requests are posted .* since a completion with error", "polled"),
    "unacknowledged-cq-event": ("unacknowledged-event", "ibv_ack_cq_events of 1 events", None),
    "unacknowledged-event": ("unacknowledged-event", "ibv_ack_async_event of 1 events", None),
    "cq-in-use": ("in-use", "the completion queue is destroyed, and 2 objects use it: one is a queue pair", "created"),
    "domain-in-use": ("in-use", "the protection domain is destroyed, and 4 objects use it", "created"),
    "fork": ("fork", "without ibv_fork_init", "registered"),
    "builder-two-threads": ("builder-thread", "builds a request while thread \\d+ is between", "started"),
    "builder-not-started": ("builder-not-started", "belongs between ibv_wr_start and ibv_wr_complete", "created"),
    "builder-restarted": ("builder-restarted", "has not ended what it started", "started"),
}
# What is told with --strict only.
STRICT = {
    "changed-unsignalled": ("changed-buffer", "WRITE of 4096 bytes .* changed between", "posted"),
    "changed-answered": ("changed-buffer", "SEND of 64 bytes .* changed between", "posted"),
    "closed-early": ("closed-early", "the device is closed, and 1 objects use it", "created"),
    "leak": ("leak", "a queue pair is never destroyed", "created"),
    "write-race": ("write-race", "a WRITE of 8 bytes on QP 0x\\w+ lies beside one of 1024 bytes", "data posted"),
}
# What else follows from a mistake.
BESIDES = {"ignored-error": {"no-receive"}, "closed-early": {"leak"}}


def finding_is(name, kind, text, other, status):
    """The finding with its line of source, and none of another kind."""
    def check(output):
        block = re.search(rf"hostnic check\[\d+\]: {kind}: \w+: [^\n]*{text}(?:[^\n]*\n)?(?:    [^\n]*\n)*", output)
        if block is None:
            return f"no finding {kind} that says '{text}'"
        if not re.search(r"    (?:at|called from) \S.*\(\w+\.cc:\d+\)\n", block.group(0)) and name != "leak":
            return "the finding has no line of source"
        if other is not None and not re.search(rf"    {other} at .*\((?:\w+)\.cc:\d+\)", block.group(0)):
            return f"the finding does not say where it was {other}"
        kinds = set(re.findall(r"hostnic check\[\d+\]: ([\w-]+):", output))
        if kinds - {kind} - BESIDES.get(name, set()):
            return f"other findings: {kinds}"
        return None if f"status {status}\n" in output else f"not status {status}"
    return check


def of_planted(hostnic, planted):
    for name, (kind, text, other) in {**PLANTED, **STRICT}.items():
        strict = "--strict " if name in STRICT else ""
        line = f"{hostnic} lab -q -- {hostnic} check {strict}-- {planted} {name}; echo status $?"
        yield Case(f"check: planted {name}", ["sh", "-c", line], 30, name in ("changed-send", "stale-key", "fork"),
                   finding_is(name, kind, text, other, 96))
    listed = f"{planted} --list | sort | tr '\\n' ' '"
    yield Case("check: each planted mistake has a case", ["sh", "-c", listed], 10, True,
               lambda output: None if output.split() == sorted([*PLANTED, *STRICT]) else "the list is another one")


def no_findings(*patterns, processes=r"[1-9]\d*"):
    return has_all(rf"hostnic check: no findings in {processes} process", r"status 0\n", *patterns)


def of_good_programs(maker, hostnic):
    apps = maker.apps / "tests/apps"
    def case(name, command, check=None, quick=False, options=""):
        yield Case(f"check: no finding in {name}", ["sh", "-c", f"{hostnic} lab -q {options} --check -- {command}; echo status $?"], 60,
                   quick, check or no_findings())
    def two(server, client, port):
        return (f"sh -c '{hostnic} run --device hnic0 -- {server} -p {port} >/dev/null & "
                f"{hostnic} run --device hnic1 -- {client} -p {port} 127.0.0.1; wait'")
    for test in ("ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_send_lat", "ib_write_lat", "ib_read_lat", "ib_atomic_bw",
                 "ib_send_bw -b", "ib_write_bw -q 4", "ib_send_bw -c UD", "ib_send_bw --use-srq -q 2", "ib_send_lat -e"):
        yield from case(test, two(f"{test} -F -n 1000", f"{test} -F -n 1000", maker.next_port()), no_findings(processes=2),
                        test in ("ib_send_bw", "ib_read_lat"))
    for test in ("ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong"):
        yield from case(test, two(f"{test} -g 0", f"{test} -g 0", maker.next_port()), no_findings(processes=2))
    port = maker.next_port()
    yield from case("rping", f"sh -c 'rping -s -a 127.77.0.1 -p {port} -C 20 & rping -c -a 127.77.0.1 -p {port} -C 20; wait'",
                    no_findings(processes=2))
    yield from case("hostnic-verify", f"{apps}/hostnic-verify --both --device hnic0 --peer-device hnic1 --seed 7", quick=True,
                    options="--loss 1%")
    yield from case("hostnic-allreduce", f"{apps}/hostnic-allreduce --ranks 8 --rounds 3")
    yield from case("credit-channel", f"{apps}/credit-channel")


def of_runs(hostnic, planted):
    def case(name, line, *patterns):
        return Case(f"check: {name}", ["sh", "-c", f"{line}; echo status $?"], 30, True, has_all(*patterns))
    inside = f"{hostnic} lab -q -- {hostnic} check"
    yield case("another exit code", f"{inside} --exit-code 5 -- {planted} stale-key", "1 finding in 1 process", "status 5\n")
    yield case("the command's own status goes first", f"{inside} -- sh -c '{planted} stale-key; exit 7'", "1 finding in 1", "status 7\n")
    yield case("nothing to see", f"{hostnic} check -- true", "no program made a call of verbs that could be seen", "status 0\n")
    yield case("one finding of two processes", f"{inside} -- sh -c '{planted} stale-key; {planted} stale-key'",
               "1 finding in 2 processes, 1 of them again", "status 96\n")
    yield case("not without --strict", f"{inside} -- {planted} leak", "no findings", "status 0\n")
    yield case("a datagram that was answered, not without --strict", f"{inside} -- {planted} changed-answered", "no findings",
               "status 0\n")
    yield case("suppressed", f"echo 'stale-key *stale_key*  # known' >s.$$; {inside} --suppress s.$$ -- {planted} stale-key; e=$?; "
               "rm s.$$; (exit $e)", "no findings in 1 process, 1 suppressed", "status 0\n")
    yield case("a suppression that is none", f"echo 'no-kind *' >s.$$; {inside} --suppress s.$$ -- true; e=$?; rm s.$$; (exit $e)",
               'line 1: no kind of finding is called "no-kind"', "status 2\n")
    yield case("as JSON", f"{inside} --json j.$$ -- {planted} stale-key; python3 -c \"import json,sys; f=json.load(open('j.$$'))"
               "['findings'][0]; print(f['kind'], f['places'][0]['line'].split(':')[0], f['other'])\"; rm j.$$",
               "stale-key stage.cc deregistered\n")
    yield case("with faults", f"{hostnic} lab -q --check --fault 'post_send nth 1 errno EIO' -- {planted} stale-key",
               "no findings", "faults fired: 1 of 1", "status 1\n")


def of_docs(hostnic):
    page = (HERE.parents[1] / "docs/check.md").read_text()
    table = page.split("<!-- hostnic check --list -->\n")[1].split("<!-- end -->")[0]
    yield Case("check: docs/check.md has the kinds of the code", [hostnic, "check", "--list"], 30, True,
               lambda output: None if table in output else "docs/check.md: put `hostnic check --list` between its marks")


def check_cases(maker):
    hostnic = maker.build / "hostnic"
    planted = maker.apps / "tests/check/hostnic-planted"
    yield from of_planted(hostnic, planted)
    yield from of_good_programs(maker, hostnic)
    yield from of_runs(hostnic, planted)
    yield from of_docs(hostnic)
