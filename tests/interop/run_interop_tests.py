#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""hostnic and a genuine RoCEv2 peer: stock programs between a hostnicd with `transport=roce` and a
Linux kernel's rdma_rxe, with either as the client, at path MTU 1024 and 4096, without losses and
(RC) while one in a hundred of the peer's frames is lost. Needs root and the peer, which
the build.sh of HOSTNIC_RXE_SCRIPTS (../shared/rxe-peer) makes once, some 53 MB: in
~/.cache/hostnic-rxe, or where HOSTNIC_RXE_PEER says. Without them all cases are skipped."""

import atexit
import json
import shlex
import signal
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / part) for part in ("lab", "support")]
from harness import BUSY_FACTOR, Case, Ports, pair, parse, require_programs, run_one, select  # noqa: E402
import ground  # noqa: E402
from ground import HOSTNIC_ADDRESS, RXE_ADDRESS, RXE_GID_INDEX, CannotRun, Ground  # noqa: E402
import interop_page  # noqa: E402
from fault_rows import bring_faults, fault_cases  # noqa: E402
from interop_rows import ROWS  # noqa: E402

VERIFY = Path("tests/apps/hostnic-verify")
INTERFACE_MTUS = (1500, 9000)  # path MTU 1024 and 4096
LOSS_PERCENT = 1
# How often a case runs again that may have met a race of its program.
RACES = 2
CLIENTS = ("hostnic", "rxe")
ASK_TIMES, ASK_PAUSE_S = 10, 0.5


class Sides:
    """How one row's program is called at each end, and the command that runs both."""

    def __init__(self, at, row, client, port):
        self.at, self.row, self.port = at, row, port
        self.guest_serves = client == "hostnic"
        self.server_address = RXE_ADDRESS if self.guest_serves else HOSTNIC_ADDRESS

    def words(self, in_guest, serves):
        """The program and its options."""
        row, words = self.row, [self.row.program, *self.row.options]
        if row.program == "hostnic-verify":
            words[0] = "LD_LIBRARY_PATH=/host /host/hostnic-verify" if in_guest else str(self.at.build / VERIFY)
            words += ["--listen", self.port] if serves else ["--connect", f"{self.server_address}:{self.port}"]
        elif row.program.startswith("ib"):
            gid = str(RXE_GID_INDEX if in_guest else 0)
            if row.program.startswith("ibv_"):
                words += ["-g", gid]
                if row.service != "UD":
                    words += ["-m", str(self.at.rdma_mtu)]
            elif row.meets_by != "cm":
                words += ["-x", gid]
            words += ["-p", self.port, *([] if serves else [self.server_address])]
        elif row.program == "rping":
            words += ["-s" if serves else "-c", "-a", self.server_address, "-p", self.port]
        else:  # ucmatose, udaddy
            words += ["-b" if serves else "-s", self.server_address]
        words += row.server_options if serves else row.client_options
        return [str(word) for word in words]

    def line(self, in_guest, serves):
        words = self.words(in_guest, serves)
        return " ".join([words[0], *map(shlex.quote, words[1:])])

    def asking(self, line):
        """A client that asks until somebody listens; what it said in vain is not shown."""
        if self.row.meets_by != "cm":
            return line
        return (f"for i in $(seq {ASK_TIMES}); do sleep {ASK_PAUSE_S}; said=$({line} 2>&1) && "
                'echo "$said" && exit 0; done; echo "$said"; exit 1')

    def on_hostnic(self, serves):
        if serves or self.row.meets_by != "cm":
            return self.at.on_hostnic(*self.words(False, serves))
        return self.at.on_hostnic("sh", "-c", self.asking(self.line(False, serves)))

    def command(self):
        # The guest ends its program when the case would end.
        at, row, limit_s = self.at, self.row, self.row.limit_s * BUSY_FACTOR
        tcp = row.meets_by == "tcp"
        if not self.guest_serves:
            client = at.in_guest(self.asking(self.line(True, False)), limit_s)
            return pair(self.port if tcp else 0, self.on_hostnic(True), client)
        client = self.on_hostnic(False)
        if not tcp:
            return pair(0, at.in_guest(self.line(True, True), limit_s), client)
        return pair(0, at.serving_in_guest(self.line(True, True), self.port, limit_s),
                    at.when_listening(self.port, *client))


def good_output(row, at):
    """The row's own check, and that perftest's path MTU is the one that is meant."""
    def check(output):
        reason = row.check(output)
        if reason is None and row.program.startswith("ib_") and row.service != "UD":
            if f"Mtu             : {at.rdma_mtu}[B]" not in output:
                return f"not the path MTU {at.rdma_mtu}"
        return reason
    return check


def cases_at(at, ports, lossy):
    cases = []
    for row in ROWS:
        if lossy and not row.lossy:
            continue
        for client in CLIENTS:
            network = f"loss {LOSS_PERCENT} %" if lossy else "clean"
            server = CLIENTS[1 - CLIENTS.index(client)]
            case = Case(f"{row.service} {row.name} [{client} to {server}, MTU {at.rdma_mtu}, {network}]",
                        Sides(at, row, client, ports.next()).command(), row.limit_s, row.quick,
                        good_output(row, at))
            case.place = (row, client, at.rdma_mtu, lossy)
            cases.append(case)
    return cases


def may_be_race(case, text):
    """perftest's -R connects twice, and its server listens anew between: a client that is quicker is rejected and ends.
    The one that asks next is then taken for the second connection, and each end waits for the other."""
    if not hasattr(case, "place"):
        return False
    row = case.place[0]
    return row.meets_by == "cm" and row.program.startswith("ib_") and "not done after" in text.splitlines()[0]


def kept_results(path):
    return json.loads(path.read_text(encoding="utf-8")) if path is not None and path.exists() else {}


class Run:
    """All cases one after the other, and how they ended."""

    def __init__(self, kept):
        self.counts = {"ok": 0, "FAIL": 0, "skip": 0}
        self.kept = kept  # a file, or None
        self.results = kept_results(kept)

    def case(self, case, at=None):
        outcome, text = run_one(case)
        for _ in range(RACES):
            if outcome != "FAIL" or at is None or not may_be_race(case, text):
                break
            at.clear_guest()
            outcome, text = run_one(case)
        self.counts[outcome] += 1
        if hasattr(case, "place"):
            self.results[interop_page.key(*case.place)] = outcome if outcome != "FAIL" else text.splitlines()[0]
        if self.kept is not None:
            self.kept.write_text(json.dumps(self.results, indent=1), encoding="utf-8")
        print(text, flush=True)
        return outcome

    def cases(self, at, cases):
        for case in cases:
            if self.case(case, at) == "FAIL":
                at.clear_guest()
                if not at.guest_lives():
                    raise CannotRun("the guest is gone")

    def problem(self, what, logs=""):
        print(f"FAIL {what}\n{logs}".rstrip(), flush=True)
        self.counts["FAIL"] += 1

    def skip(self, cases, why):
        for case in cases:
            case.skip = why
            self.case(case)

    def over(self, at, clean, lossy, faults):
        try:
            at.set_up()
            at.bring(at.build / VERIFY)
            self.cases(at, clean)
            if faults:
                bring_faults(at)
                self.cases(at, faults)
            if lossy:
                at.lose(LOSS_PERCENT)
                self.cases(at, lossy)
                at.lose(0)
            problem = at.stop_daemon()
            if problem:
                self.problem(problem, at.logs())
        except CannotRun as error:
            self.problem(f"interface MTU {at.mtu}: {error}", at.logs())
        finally:
            at.take_down()


def more_options(parser):
    parser.add_argument("--transport", default="roce", help="of hostnicd's NIC; 'default': the option is not given")
    parser.add_argument("--results", type=Path, help="keep how each case ended in this file, and what is "
                        "there of cases that are not run")
    parser.add_argument("--write-docs", action="store_true", help="write docs/interop.md from --results")


def main():
    options = parse(__doc__, more_options)
    for which in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(which, lambda number, _: sys.exit(128 + number))
    transport = None if options.transport == "default" else options.transport
    ports, run = Ports(), Run(options.results)
    for mtu in INTERFACE_MTUS:
        at = Ground(options.build, mtu, transport)
        atexit.register(at.take_down)
        clean = select(cases_at(at, ports, False), options)
        lossy = select(cases_at(at, ports, True), options)
        # Rules have nothing to do with packets.
        faults = select(list(fault_cases(at, ports.next())), options) if mtu == INTERFACE_MTUS[0] else []
        if options.list:
            print("\n".join(case.name for case in clean + lossy + faults))
        elif not clean and not lossy and not faults:
            continue
        elif ground.missing() is not None:
            run.skip(clean + lossy + faults, ground.missing())
        else:
            require_programs(options.build, ["hostnic", "hostnicd", VERIFY])
            run.over(at, clean, lossy, faults)
    if options.list:
        return 0
    if options.write_docs:
        interop_page.write(run.results)
    print(f"{run.counts['ok']} passed, {run.counts['FAIL']} failed" +
          (f", {run.counts['skip']} skipped" if run.counts["skip"] else ""))
    return 1 if run.counts["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
