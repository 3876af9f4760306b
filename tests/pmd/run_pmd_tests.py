#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""hostnic over DPDK's own drivers: stock programs and hostnic-verify between two NICs whose ports are adapters that
QEMU emulates (virtio, e1000, e1000e, vmxnet3; bound to uio_pci_generic, or to vfio-pci behind an IOMMU), in a guest
whose files are this machine's, read-only; and over memif and vhost-user with virtio-user, which need no guest. Clean
and while packets are lost, with Ethernet's usual MTU and jumbo frames; links that are lost, adapters that are removed;
each frame on the cable is looked at. No KVM is needed, and none used. Needs root, which the packages are there for."""

import atexit
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / part) for part in ("lab", "support")]
from harness import Case, Ports, pair, parse, require_programs, run_one, select  # noqa: E402
from guest import be_first_process, set_up_tree  # noqa: E402
import frames  # noqa: E402
import kernel  # noqa: E402
import page  # noqa: E402
from pmd_ground import ADDRESSES, ETHERNET_MTU, LINKS, MTUS, USUAL, CannotRun, Ground  # noqa: E402
from machine import ADAPTERS, ASK, IN_GUEST, PCI_ADDRESSES, Machine  # noqa: E402
from rows import (  # noqa: E402
    DEEDS, ENDS_WELL, FRAMES, LINK_LOST, LOSS_PERCENT, NO_HUGE, REMOVED, ROWS, VERIFY)

FINIT_MODULE = 313
PCI = Path("/sys/bus/pci")
# Of emulated processors on a busy machine: until programs have begun, and until something is noticed.
START_S, NOTICE_S = 300, 60
BRIEF_MTU = MTUS[1]


# ---- cases

def name_of(what, place, lossy=False):
    return f"{what} [{place}{f', loss {LOSS_PERCENT} %' if lossy else ''}]"


def row_command(at, row, port):
    words = list(row.words)
    if row.words[0] == str(VERIFY):
        words[0] = str(at.build / VERIFY)
        return pair(0, at.on(0, *words, "--listen", str(port)), at.on(1, *words, "--connect", f"127.0.0.1:{port}"))
    if row.meets_by == "cm":
        server = [*words[:1], "-s", *words[1:], "-a", ADDRESSES[0], "-p", str(port)]
        client = [*words[:1], "-c", "-v", *words[1:], "-a", ADDRESSES[0], "-p", str(port)]
        ctl = f"{at.build}/hostnic ctl --socket {at.socket} 'show cm'"
        wait = f'until {ctl} | grep -q listening; do sleep 0.2; done; exec "$@"'
        return pair(0, at.on(0, *server), ["sh", "-c", wait, "sh", *at.on(1, *client)])
    words += ["-p", str(port)]
    return pair(port, at.on(0, *words), at.on(1, *words, "127.0.0.1"))


def rows_at(mtu, iommu=False):
    """(row, whether packets are lost)."""
    for lossy in (False, True):
        for row in ROWS:
            if lossy and not row.lossy or mtu != USUAL and not row.jumbo or iommu and not row.brief:
                continue
            if not (lossy and mtu != USUAL):
                yield row, lossy


def deeds_at(adapter, mtu):
    if mtu == USUAL and not adapter.iommu:
        yield from (NO_HUGE, LINK_LOST)
    yield ENDS_WELL
    if mtu == USUAL and adapter.removable:
        yield REMOVED


def cases_of(adapter, options):
    """All that is run in the guest that has the adapter, as cases with nothing to run yet."""
    for mtu in (BRIEF_MTU,) if adapter.iommu else MTUS:
        place = f"{adapter.name}, MTU {ETHERNET_MTU[mtu[1]]}"
        for row, lossy in rows_at(mtu, adapter.iommu):
            yield Case(name_of(row.name, place, lossy), [], quick=adapter.quick and row.quick)
        for deed in deeds_at(adapter, mtu):
            yield Case(name_of(deed, place), [], quick=adapter.quick and deed in (LINK_LOST, ENDS_WELL))
    yield Case(name_of(FRAMES, adapter.name), [], quick=adapter.quick)


def cases_of_link(link):
    for mtu in link.mtus:
        place = f"{link.name}, MTU {ETHERNET_MTU[mtu[1]]}"
        for row, lossy in rows_at(mtu):
            yield Case(name_of(row.name, place, lossy), [], quick=link.quick and row.quick)
        yield Case(name_of(ENDS_WELL, place), [], quick=link.quick)


class Run:
    """Cases one after the other, and how they ended."""

    def __init__(self, wanted):
        self.wanted = wanted  # names
        self.results = {}

    def ended(self, name, outcome, text):
        self.results[name] = outcome
        print(text, flush=True)

    def case(self, case):
        if case.name in self.wanted:
            self.ended(case.name, *run_one(case))

    def deed(self, name, at, do):
        """Does something that raises CannotRun where it goes wrong, or returns what went wrong."""
        if name not in self.wanted:
            return
        began = time.monotonic()
        try:
            wrong = do()
        except CannotRun as error:
            wrong = str(error)
        seconds = time.monotonic() - began
        if wrong is None:
            self.ended(name, "ok", f"ok   {name} ({seconds:.1f})")
        else:
            self.ended(name, "FAIL", f"FAIL {name} ({seconds:.1f}): {wrong}\n{at.told() if at else ''}".rstrip())

    def any_of(self, names):
        return any(name in self.wanted for name in names)


def run_rows(run, at, ports, iommu=False):
    lost_before = False
    for row, lossy in rows_at((at.key, at.mtu), iommu):
        name = name_of(row.name, at.title, lossy)
        if name not in run.wanted:
            continue
        if lossy and not lost_before:
            at.ctl(f"set impair all rx drop {LOSS_PERCENT}%")
        lost_before = lossy
        run.case(Case(name, row_command(at, row, ports.next()), row.limit_s, check=row.check))
    if lost_before:
        at.ctl("set impair all rx none")


# ---- what is done to an adapter

def ask(*words):
    print(ASK + " ".join(words), flush=True)


def wait_for(what, holds, patience_s=NOTICE_S):
    give_up = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > give_up:
            raise CannotRun(f"not within {patience_s} s: {what}")
        time.sleep(0.1)


def lose_link(at):
    """The link of the first NIC's adapter: programs are told, and what is under way goes on."""
    watch_log = at.directory / "watch"
    with open(watch_log, "wb") as log:
        watch = subprocess.Popen([str(word) for word in at.on(0, "stdbuf", "-oL", "ibv_asyncwatch", "-d", "hnic0")],
                                 stdout=log, stderr=log)
    try:
        wait_for("ibv_asyncwatch watches", lambda: "async event" in watch_log.read_text(), START_S)
        before = at.counter(0, "link_downed")
        port = Ports().next()
        words = ["ib_write_bw", "-F", "-s", "1024", "-n", "1500", "-u", "18", "-p", str(port)]
        with open(at.directory / "traffic", "w+b") as told:
            traffic = subprocess.Popen(pair(port, at.on(0, *words), at.on(1, *words, "127.0.0.1")), stdout=told,
                                       stderr=told)
            packets = at.counter(0, "rx_packets")
            wait_for("packets move", lambda: at.counter(0, "rx_packets") > packets + 20, START_S)
            ask("set_link", "nic0", "down")
            at.wait_for_log("has no link", NOTICE_S)
            wait_for("show nic says so", lambda: "link down" in at.ctl("show nic hnic0"))
            ask("set_link", "nic0", "up")
            at.wait_for_log("has a link again", NOTICE_S)
            try:
                status = traffic.wait(START_S)
            except subprocess.TimeoutExpired:
                traffic.kill()
                return "ib_write_bw has not ended"
            told.seek(0)
            if status != 0:
                return "ib_write_bw did not survive it:\n" + told.read().decode(errors="replace")
        for event in ("IBV_EVENT_PORT_ERR", "IBV_EVENT_PORT_ACTIVE"):
            wait_for(f"a program hears of it: {event}",
                     lambda event=event: event in watch_log.read_text())
        if at.counter(0, "link_downed") != before + 1:
            return f"link_downed has risen by {at.counter(0, 'link_downed') - before}"
        return None
    finally:
        watch.kill()
        watch.wait()


def remove_adapter(at):
    """The second NIC's, while a program sends: it gets an error, hostnicd says what is gone and goes on."""
    port = Ports().next()
    words = ["ib_write_bw", "-F", "-D", "40", "-p", str(port)]
    with open(at.directory / "traffic", "w+b") as told:
        traffic = subprocess.Popen(pair(port, at.on(0, *words), at.on(1, *words, "127.0.0.1")), stdout=told,
                                   stderr=told)
        packets = at.counter(0, "rx_packets")
        wait_for("packets move", lambda: at.counter(0, "rx_packets") > packets + 20, START_S)
        ask("device_del", "nic1")
        at.wait_for_log("is gone: nothing is sent or received", NOTICE_S)
        try:
            status = traffic.wait(START_S)
        except subprocess.TimeoutExpired:
            traffic.kill()
            return "ib_write_bw neither works nor fails"
        told.seek(0)
        if status == 0 or "Completion with error" not in told.read().decode(errors="replace"):
            return f"ib_write_bw ended with status {status} and no error"
    if "link down" not in at.ctl("show nic hnic1") or "link down" in at.ctl("show nic hnic0"):
        return "show nic tells other links:\n" + at.ctl("show nic")
    if at.counter(1, "interface_lost") != 1:
        return "interface_lost has not risen"
    return at.stop()


def try_without_huge_pages(at):
    done = subprocess.run([str(word) for word in at.daemon_command("--no-huge")], capture_output=True, text=True,
                          check=False)
    if done.returncode == 0 or "needs huge pages" not in done.stderr:
        return f"hostnicd ended with status {done.returncode} and said:\n{done.stderr[-500:]}"
    return None


# ---- in the guest

def bind(adapter):
    libc = ctypes.CDLL(None, use_errno=True)
    for path in kernel.modules():
        with open(path, "rb") as file:
            if libc.syscall(FINIT_MODULE, file.fileno(), b"", 0) != 0:
                raise CannotRun(f"{path.name}: {os.strerror(ctypes.get_errno())}")
    for address in PCI_ADDRESSES:
        device = PCI / "devices" / address
        if (device / "driver").exists():
            (device / "driver/unbind").write_text(address)
        (device / "driver_override").write_text(adapter.bound_to)
        (PCI / "drivers_probe").write_text(address)
        bound = (device / "driver").resolve().name
        if bound != adapter.bound_to:
            raise CannotRun(f"{address} is bound to {bound}")


def set_up_guest(adapter):
    set_up_tree()
    os.makedirs("/dev/hugepages", exist_ok=True)
    for command in (["mount", "-t", "hugetlbfs", "huge", "/dev/hugepages"], ["ip", "link", "set", "lo", "up"]):
        subprocess.run(command, check=True)
    bind(adapter)


def run_adapter_at(adapter, mtu, run, options, ports):
    at = Ground(adapter.name, options.build, PCI_ADDRESSES, mtu)
    names = [name_of(row.name, at.title, lossy) for row, lossy in rows_at(mtu, adapter.iommu)]
    names += [name_of(deed, at.title) for deed in deeds_at(adapter, mtu)]
    if not run.any_of(names):
        return
    try:
        run.deed(name_of(NO_HUGE, at.title), at, lambda: try_without_huge_pages(at))
        at.start()
        run_rows(run, at, ports, adapter.iommu)
        run.deed(name_of(LINK_LOST, at.title), at, lambda: lose_link(at))
        run.deed(name_of(ENDS_WELL, at.title), at, at.stop)
        if name_of(REMOVED, at.title) in run.wanted:
            at.stop()
            at.start()
            run.deed(name_of(REMOVED, at.title), at, lambda: remove_adapter(at))
    except CannotRun as error:
        run.ended(at.title, "FAIL", f"FAIL hostnicd [{at.title}]: {error}\n{at.told()}")
    finally:
        at.take_down()


def run_in_guest(adapter, options):
    run, ports = Run({case.name for case in select(cases_of(adapter, options), options)}), Ports()
    # The adapter is removed last.
    for mtu in (BRIEF_MTU,) if adapter.iommu else reversed(MTUS):
        run_adapter_at(adapter, mtu, run, options, ports)
    return 1 if "FAIL" in run.results.values() else 0


# ---- outside

class Outside:
    """What the guests say of their cases, and the cases that need none."""

    def __init__(self, kept):
        self.kept = kept
        self.results = json.loads(kept.read_text(encoding="utf-8")) if kept and kept.exists() else {}
        self.counts = {"ok": 0, "FAIL": 0, "skip": 0}

    def note(self, name, outcome):
        self.counts[outcome] += 1
        self.results[name] = outcome
        if self.kept is not None:
            self.kept.write_text(json.dumps(self.results, indent=1), encoding="utf-8")

    def over_link(self, link, cases, options):
        run, ports = Run({case.name for case in cases}), Ports()
        for mtu in link.mtus:
            at = Ground(link.name, options.build, link.ports, mtu, ["--no-huge", "-m", "512"])
            try:
                if run.any_of(name for name in run.wanted if at.title in name):
                    at.start()
                    run_rows(run, at, ports)
                    run.deed(name_of(ENDS_WELL, at.title), at, at.stop)
            except CannotRun as error:
                run.ended(at.title, "FAIL", f"FAIL hostnicd [{at.title}]: {error}\n{at.told()}")
            finally:
                at.take_down()
        for name, outcome in run.results.items():
            self.note(name, outcome)

    def in_machine(self, adapter, cases):
        machine = ToldMachine(adapter, self)
        atexit.register(machine.end)
        wanted = {case.name for case in cases} - {name_of(FRAMES, adapter.name)}
        run = Run({case.name for case in cases})
        try:
            if machine.run() != 0 and not machine.failed:
                self.note(f"guest [{adapter.name}]", "FAIL")
            machine.process.wait(NOTICE_S)
            run.deed(name_of(FRAMES, adapter.name), None, lambda: look_at_cable(machine.dump))
        finally:
            machine.end()
        for name, outcome in run.results.items():
            self.note(name, outcome)
        for name in sorted(wanted - machine.heard_of):
            print(f"FAIL {name}: it has not come to that")
            self.note(name, "FAIL")


class ToldMachine(Machine):
    def __init__(self, adapter, outside):
        super().__init__(adapter)
        self.outside, self.failed, self.heard_of = outside, False, set()

    def heard(self, line):
        told = re.match(r"(ok|FAIL|skip) +(.* \[.*\])[ :]", line)
        if told:
            self.failed |= told.group(1) == "FAIL"
            self.heard_of.add(told.group(2))
            self.outside.note(told.group(2), told.group(1))
        return super().heard(line)


def look_at_cable(dump):
    count, of_roce, longest, faults = frames.look_at(dump, max(ETHERNET_MTU.values()))
    print(f"     {count} frames, {of_roce} of RoCE, the longest of {longest} bytes")
    if of_roce == 0:
        return "there is no frame of RoCE"
    return "; ".join(faults) or None


def more_options(parser):
    parser.add_argument("--results", type=Path, help="keep how each case ended in this file, and what is there of "
                        "cases that are not run")
    parser.add_argument("--write-docs", action="store_true", help="write docs/physical-nic.md from --results")


def missing():
    if os.geteuid() != 0:
        return "needs root, as this machine's files are the guest's"
    return kernel.missing()


def main():
    options = parse(__doc__, more_options)
    if IN_GUEST in os.environ and os.getpid() == 1:
        adapter = next(adapter for adapter in ADAPTERS if adapter.name == os.environ[IN_GUEST])
        be_first_process(lambda: set_up_guest(adapter), lambda: run_in_guest(adapter, options))
    for which in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(which, lambda number, _: sys.exit(128 + number))
    outside = Outside(options.results)
    chosen = [(link, select(cases_of_link(link), options)) for link in LINKS]
    chosen += [(adapter, select(cases_of(adapter, options), options)) for adapter in ADAPTERS]
    if options.list:
        print("\n".join(case.name for _, cases in chosen for case in cases))
        return 0
    require_programs(options.build, ["hostnic", "hostnicd", VERIFY])
    for place, cases in chosen:
        if place in LINKS and cases:
            outside.over_link(place, cases, options)
        elif cases and missing() is None:
            outside.in_machine(place, cases)
        for case in cases if place in ADAPTERS and missing() else ():
            print(f"skip {case.name}: {missing()}")
            outside.note(case.name, "skip")
    if options.write_docs:
        page.write(outside.results)
    counts = outside.counts
    print(f"{counts['ok']} passed, {counts['FAIL']} failed" +
          (f", {counts['skip']} skipped" if counts["skip"] else ""))
    return 1 if counts["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
