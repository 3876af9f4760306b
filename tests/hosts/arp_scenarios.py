# SPDX-License-Identifier: BSD-3-Clause
"""Two hosts and a third that lies, on one switch: what false ARP packets cost a connection between
NICs on Ethernet interfaces (docs/hostnicd.md, "Neighbours")."""

import json
import re
import subprocess
import sys
from pathlib import Path

from run_hosts_tests import Cable, ip
from scene import Wrong

LIAR = Path(__file__).resolve().parent / "arp_liar.py"
PORTS = ("port0", "port1", "port2")


class SwitchCable(Cable):
    """A bridge in a namespace of its own, to which both hosts and the liar are joined."""

    def set_up(self):
        switch, liar = (f"{self.hosts[0].name.rpartition('-')[0]}-{what}" for what in ("switch", "liar"))
        self.switch, self.liar = switch, liar
        for namespace in (switch, liar, *(host.namespace for host in self.hosts)):
            ip("netns", "add", namespace)
            self.made.append(namespace)
        ip("-n", switch, "link", "add", "br0", "type", "bridge")
        ip("-n", switch, "link", "set", "br0", "mtu", self.mtu, "up")
        ends = [(host.namespace, host.interface) for host in self.hosts] + [(liar, "veth2")]
        for port, (namespace, interface) in zip(PORTS, ends):
            ip("link", "add", interface, "netns", namespace, "type", "veth", "peer", "name", port, "netns", switch)
            ip("-n", switch, "link", "set", port, "mtu", self.mtu, "master", "br0", "up")
        for host in self.hosts:
            host.set_up_interface(self.mtu)
        ip("-n", liar, "link", "set", "veth2", "mtu", self.mtu, "up")

    def lies(self, *arguments):
        done = subprocess.run(["ip", "netns", "exec", self.liar, sys.executable, LIAR, "veth2", *map(str, arguments)],
                              capture_output=True, text=True, check=False, timeout=60)
        if done.returncode != 0:
            raise Wrong(f"the liar: {done.stderr}")
        return int(done.stdout.split()[0])

    def mac_of(self, host):
        shown = subprocess.run(["ip", "-n", host.namespace, "-j", "link", "show", host.interface],
                               capture_output=True, text=True, check=True).stdout
        return json.loads(shown)[0]["address"]


def neighbours(scene, host):
    return re.search(r"neighbours \d+ unanswered \d+", scene.show_nic(host)).group(0)


def false_answers(scene):
    """Told once, to either end: what is sent goes to the liar, until the address is asked for again."""
    active, _ = scene.pair()
    cable = scene.cable
    for victim, claimed in ((scene.near, scene.far), (scene.far, scene.near)) * 3:
        heard = cable.lies("answer", victim.address, cable.mac_of(victim), claimed.address)
        if heard == 0:
            raise Wrong("nobody believed the lie: no test")
        active.goes_on()


def another_host_with_the_address(scene):
    """Announced for three seconds, fifty times a second."""
    active, _ = scene.pair("", "--timeout", 19)
    scene.counts(scene.near, "duplicate_address", lambda: scene.cable.lies("announce", scene.near.address, 3))
    active.goes_on()
    for host, lines in ((scene.near, 1), (scene.far, 0)):
        said = re.findall(r"another host .*",
                          host.log.read_text(errors="replace")[scene.log_starts[host]:])
        if len(said) != lines:
            raise Wrong(f"hostnicd {host.number} says it {len(said)} times: {said}")


def a_flood_of_arp(scene):
    """None of it is about an address that was asked for: it is not kept."""
    active, _ = scene.pair()
    before = [neighbours(scene, host) for host in scene.cable.hosts]
    scene.cable.lies("flood", 3)
    active.goes_on()
    after = [neighbours(scene, host) for host in scene.cable.hosts]
    if before != after:
        raise Wrong(f"the tables of neighbours were {before} and are {after}")


ARP_SCENARIOS = (false_answers, another_host_with_the_address, a_flood_of_arp)
