#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Losing the network: the two hosts of run_hosts_tests.py, whose link goes down and comes back, whose
address, interface or MTU changes, of which one hostnicd is started anew, or which a third host lies
to, while hostnic-witness moves data between them and says what it sees. Needs root, as the others do."""

import atexit
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from harness import Ports, parse, require_programs  # noqa: E402
from run_hosts_tests import AF_XDP_DRIVER, UDP, Cable, CannotRun, ip  # noqa: E402
from arp_scenarios import ARP_SCENARIOS, SwitchCable  # noqa: E402
from gid_scenarios import gid_goes_under_connection, other_address_comes_and_goes  # noqa: E402
from scene import NO_ANSWER, PATH_MTU, RETRY_EXC, Scene, Wrong, wait_for  # noqa: E402

WITNESS = Path("tests/apps/hostnic-witness")
CABLES = ((UDP, 1500), (UDP, 9000), ("net_af_packet", 9000), (AF_XDP_DRIVER, 1500))


def cpu_seconds(process):
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def stays_quiet(host):
    """No spinning while there is nothing to do."""
    before = cpu_seconds(host.process)
    time.sleep(1)
    used = cpu_seconds(host.process) - before
    if used > 0.5:
        raise Wrong(f"hostnicd {host.number} had nothing to do and used {used:.2f} s of CPU in a second")


def link_down_for_a_second(scene):
    """Of timeout 14 and retry_cnt 7, as most programs have them. Where the machine is so busy that
    it was down for longer than it should, it was another case."""
    before = scene.counter(scene.near, "link_downed")
    for _ in range(5):
        active, passive = scene.pair()
        start = time.monotonic()
        scene.link(scene.near, "down")
        time.sleep(1)
        scene.link(scene.near, "up")
        if time.monotonic() - start < 1.5:
            break
    active.expect("event port error, port down")
    passive.expect("event port error")  # it has no carrier, or had none a moment ago
    for witness in (active, passive):
        witness.expect("event port active, port active")
    active.goes_on()
    if scene.counter(scene.near, "link_downed") == before:
        raise Wrong("link_downed has not risen")
    scene.logged(scene.near, f"hnic0: {scene.near.interface} is down, or has no carrier")
    scene.logged(scene.near, f"hnic0: {scene.near.interface} is up again, after")


def carrier_lost_for_a_moment(scene):
    """The kernel tells of carriers at most once a second, and then how they are."""
    before = scene.counter(scene.far, "link_downed")
    active, passive = scene.pair()
    for losses in range(1, 4):
        since = len(passive.lines())
        scene.link(scene.near, "down")
        scene.link(scene.near, "up")
        passive.expect("event port error", since)
        passive.expect("event port active, port active", since)
        wait_for("link_downed rises", lambda: scene.counter(scene.far, "link_downed") == before + losses)
        active.goes_on()


def link_down_for_twenty_seconds(scene):
    active, _ = scene.pair("", "--timeout", 14)
    patient, _ = scene.pair("patient-", "--timeout", 20)
    scene.link(scene.near, "down")
    active.fails(RETRY_EXC, NO_ANSWER)
    for host in scene.cable.hosts:
        stays_quiet(host)
    time.sleep(17)
    patient.expect_running()
    scene.link(scene.near, "up")
    patient.goes_on()
    scene.pair("new-")


def address_removed_and_added(scene):
    active, passive = scene.pair("", "--timeout", 18)
    scene.address(scene.near, "del")
    if scene.near.driver != UDP:  # the NIC's address is its own
        time.sleep(0.5)
        active.goes_on()
        scene.address(scene.near, "add")
        if active.seen("event"):
            raise Wrong("an event although nothing has changed for the NIC")
        return
    active.expect("event GID table change")
    active.expect("event port error, port down")
    since = len(active.lines())
    scene.address(scene.near, "add")
    active.expect("event GID table change", since)
    active.expect("event port active, port active", since)
    active.goes_on()
    if passive.seen("event"):
        raise Wrong("the peer's port has not changed, but there was an event")
    scene.logged(scene.near, "10.0.0.1 is no address of veth0 any more")
    scene.logged(scene.near, "10.0.0.1 is an address of veth0 now")
    if scene.counter(scene.near, "address_lost") == 0:
        raise Wrong("address_lost is 0")


def interface_deleted_and_made_again(scene):
    active, passive = scene.pair("", "--timeout", 19)
    ip("-n", scene.near.namespace, "link", "del", scene.near.interface)
    for witness in (active, passive):
        witness.expect("event port error, port down")
    stays_quiet(scene.near)
    since = len(active.lines())
    scene.cable.make_veth(scene.near.interface, scene.far.interface)
    for host in scene.cable.hosts:
        scene.cable.set_up_again(host)
    active.expect("event port active, port active", since)
    active.goes_on()
    scene.logged(scene.near, "is no address of veth0 any more" if scene.near.driver == UDP else
                 "interface veth0 is gone")
    if scene.near.driver != UDP and scene.counter(scene.near, "interface_lost") == 0:
        raise Wrong("interface_lost is 0")
    scene.pair("new-")
    scene.multicast()


def mtu_lowered_and_raised(scene):
    whole = scene.cable.mtu
    lowered, fits = (1500, 1024) if whole > 1500 else (700, 512)
    active, _ = scene.pair("", "--timeout", 18)
    scene.counts(scene.near, "mtu_changed", lambda: scene.mtu(lowered))
    scene.logged(scene.near, f"the MTU of veth0 is {lowered} now.*path MTU above {fits}")
    time.sleep(0.3)
    active.expect_running()
    scene.mtu(whole)
    active.goes_on()
    scene.logged(scene.near, f"the MTU of veth0 is {whole} now")


def mtu_lowered_for_good(scene):
    whole = scene.cable.mtu
    lowered, fits = (1500, 1024) if whole > 1500 else (700, 512)
    active, _ = scene.pair()
    scene.mtu(lowered)
    active.fails(RETRY_EXC, PATH_MTU)
    active.expect(f"allows {fits}. Raise the interface's MTU")
    narrow, _ = scene.pair("new-")
    narrow.expect(f"connected, path mtu {fits}")
    scene.mtu(whole)
    narrow.goes_on()


def narrow_way(scene):
    """The interface is as wide as ever; what is behind it is not."""
    active, _ = scene.pair()
    ip("-n", scene.near.namespace, "route", "add", f"{scene.far.address}/32", "dev",
       scene.near.interface, "src", scene.near.address, "mtu", "lock", "1500")
    scene.logged(scene.near, f"the way to {scene.far.address} takes packets of at most 1500 bytes.*"
                 "mtu=1024")
    active.fails(RETRY_EXC, NO_ANSWER)
    ip("-n", scene.near.namespace, "route", "del", f"{scene.far.address}/32")
    scene.pair("new-")


def peer_restarted(scene):
    active, passive = scene.pair()
    problem = scene.far.stop_daemon()
    if problem:
        raise Wrong(problem)
    passive.expect("event local catastrophic error, port dead")
    scene.far.start_daemon()
    active.fails(RETRY_EXC, NO_ANSWER)
    again, _ = scene.pair("new-")
    again.goes_on()


def peer_killed(scene):
    active, passive = scene.pair()
    scene.far.kill_daemon()
    passive.expect("event local catastrophic error, port dead")
    active.fails(RETRY_EXC, NO_ANSWER)
    scene.far.start_daemon()
    scene.pair("new-")


def slow_down(host):
    shaper = ["root", "tbf", "rate", "20mbit", "burst", "20kb", "limit", "200mb"]
    return subprocess.run(["tc", "-n", host.namespace, "qdisc", "add", "dev", host.interface,
                           *shaper], check=False, capture_output=True).returncode == 0


def full_socket_is_waited_for_asleep(scene):
    """Datagrams, which no window holds back, on a slow interface; as an ordinary user has it: with
    CAP_NET_ADMIN the socket is larger."""
    port = str(scene.ports.next())
    flood = ["ib_send_bw", "-F", "-c", "UD", "-s", "1024", "-D", "20", "-p", port]
    programs = []
    scene.near.daemon_prefix = ["setpriv", "--bounding-set", "-net_admin", "--inh-caps",
                                "-net_admin"]
    try:
        scene.near.stop_daemon()
        scene.near.start_daemon()
        for command in (scene.far.run(*flood), scene.near.run(*flood, scene.far.exchange_address)):
            programs.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0,
                                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            time.sleep(0.5)
        if not slow_down(scene.near):
            return  # no shaper in this kernel
        wait_for("hostnicd waits for room", lambda: "times for room" in scene.show_nic(scene.near))
        used = cpu_seconds(scene.near.process)
        time.sleep(2)
        used = cpu_seconds(scene.near.process) - used
        if used > 0.25:
            raise Wrong(f"hostnicd waited for room in its socket and used {used:.2f} s of CPU in 2 s")
    finally:
        scene.near.daemon_prefix = []
        subprocess.run(["tc", "-n", scene.near.namespace, "qdisc", "del", "dev",
                        scene.near.interface, "root"], check=False, capture_output=True)
        for program in programs:
            program.kill()
            program.wait()
        scene.near.stop_daemon()
        scene.near.start_daemon()


SCENARIOS = (link_down_for_a_second, carrier_lost_for_a_moment, address_removed_and_added,
             other_address_comes_and_goes, gid_goes_under_connection,
             interface_deleted_and_made_again,
             mtu_lowered_and_raised, mtu_lowered_for_good, narrow_way, peer_restarted, peer_killed,
             full_socket_is_waited_for_asleep, link_down_for_twenty_seconds)


def cases_of(driver, mtu):
    """What can be told apart there."""
    for scenario in SCENARIOS:
        once = (link_down_for_twenty_seconds, full_socket_is_waited_for_asleep)
        if scenario in once and (driver, mtu) != (UDP, 1500):
            continue
        about_mtu = (mtu_lowered_and_raised, mtu_lowered_for_good, narrow_way)
        if driver == UDP and mtu == 9000 and scenario not in about_mtu:
            continue
        if scenario is narrow_way and (driver, mtu) != (UDP, 9000):
            continue
        if driver != UDP and scenario in (other_address_comes_and_goes, gid_goes_under_connection):
            continue  # the kernel's addresses are not the NIC's
        if driver == AF_XDP_DRIVER and scenario is address_removed_and_added:
            continue  # the kernel gets nothing there
        yield scenario


class LossCable(Cable):
    def make_veth(self, first, second):
        ip("link", "add", first, "netns", self.hosts[0].namespace, "type", "veth", "peer", "name",
           second, "netns", self.hosts[1].namespace)

    def set_up_again(self, host):
        if host.exchange_interface == host.interface:
            host.set_up_interface(self.mtu)
        else:
            ip("-n", host.namespace, "link", "set", host.interface, "mtu", self.mtu)
            ip("-n", host.namespace, "link", "set", host.interface, "up")


def run_scenario(cable, scenario, title, ports):
    """Whether it passes."""
    start = time.monotonic()
    scene = Scene(cable, ports)
    try:
        scenario(scene)
        reason = None
        for host in cable.hosts:
            if host.process is None or host.process.poll() is not None:
                reason = f"hostnicd {host.number} has ended"
    except Wrong as error:
        reason = str(error)
    except CannotRun as error:
        reason = str(error)
    finally:
        scene.stop()
    seconds = time.monotonic() - start
    if reason is None:
        print(f"ok   {title} ({seconds:.1f})", flush=True)
        return True
    print(f"FAIL {title} ({seconds:.1f}): {reason}\n{scene.logs()}\n{cable.logs()}", flush=True)
    return False


def run_cable(make_cable, build, driver, mtu, cases, ports):
    """(passed, failed, skipped). A case that fails has the others begin on a new cable."""
    passed = failed = 0
    waiting = list(cases)
    while waiting:
        cable = make_cable(build, mtu, driver, driver)
        atexit.register(cable.take_down)
        cable.build, cable.witness = build, build / WITNESS
        try:
            try:
                cable.set_up()
            except CannotRun as error:
                for _, title in waiting:
                    print(f"skip {title}: {error}")
                return passed, failed, len(waiting)
            cable.start_daemons()
            while waiting:
                scenario, title = waiting.pop(0)
                if not run_scenario(cable, scenario, title, ports):
                    failed += 1
                    break
                passed += 1
            for problem in cable.stop_daemons():
                print(f"FAIL {problem}\n{cable.logs()}")
                failed += 1
        finally:
            cable.take_down()
    return passed, failed, 0


def main():
    options = parse(__doc__)
    for which in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(which, lambda number, _: sys.exit(128 + number))
    ports = Ports()
    totals = [0, 0, 0]
    for make_cable, driver, mtu in (*((LossCable, *each) for each in CABLES), (SwitchCable, "net_af_packet", 1500)):
        place = f"{'veth' if make_cable is LossCable else 'switch'}, {driver.removeprefix('net_')}, MTU {mtu}"
        cases = [(scenario, f"{scenario.__name__.replace('_', ' ')} [{place}]")
                 for scenario in (cases_of(driver, mtu) if make_cable is LossCable else ARP_SCENARIOS)]
        cases = [case for case in cases if re.search(options.filter, case[1]) and
                 (not options.quick or (driver, mtu) == (UDP, 1500) and "twenty" not in case[1])]
        if options.list:
            print("\n".join(title for _, title in cases))
            continue
        if not cases:
            continue
        if os.geteuid() != 0 or shutil.which("ip") is None:
            reason = "needs root" if os.geteuid() != 0 else "needs ip (iproute2)"
            for _, title in cases:
                print(f"skip {title}: {reason}")
            totals[2] += len(cases)
            continue
        require_programs(options.build, ["hostnic", "hostnicd", WITNESS])
        for i, count in enumerate(run_cable(make_cable, options.build, driver, mtu, cases, ports)):
            totals[i] += count
    if options.list:
        return 0
    print(f"{totals[0]} passed, {totals[1]} failed" +
          (f", {totals[2]} skipped" if totals[2] else ""))
    return 1 if totals[1] else 0


if __name__ == "__main__":
    sys.exit(main())
