# SPDX-License-Identifier: BSD-3-Clause
"""`./run soak --frames`: two hosts on a switch, whose third host sends them hostile frames
(tests/hosts/frame_attacker.py) and ARP packets, while hostnic-witness and hostnic-verify move data
between them and look at every byte. Programs that nobody relies on are attacked with all that an eavesdropper
knows. With a build with sanitizers as --daemons nothing that hostnicd reads or writes wrongly stays unseen."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

HOSTS = Path(__file__).resolve().parents[1] / "hosts"
sys.path[:0] = [str(HOSTS.parent / "lab"), str(HOSTS)]
from arp_scenarios import PORTS, SwitchCable  # noqa: E402
from harness import Ports  # noqa: E402
from run_hosts_tests import UDP, CannotRun  # noqa: E402
from scene import Scene, Wrong  # noqa: E402

DRIVERS = ("net_af_packet", UDP)
WITNESSES = 2
# Of honest programs, as ibv_qp_attr.timeout: half a minute of silence, since a flood on a machine that is busy
# otherwise may leave the hosts no time for seconds.
ACK_TIMEOUT = 20
SANITIZERS = re.compile(r"Sanitizer|runtime error|Assertion|terminate called")


class Group:
    """Processes that are begun anew when they have ended."""

    def __init__(self, make):
        self.make, self.processes, self.begun = make, [], 0

    def look(self):
        if all(process.poll() is not None for process in self.processes):
            self.stop()
            self.processes = [subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                               stderr=subprocess.DEVNULL, process_group=0) for command in self.make()]
            self.begun += 1

    def stop(self):
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Frames:
    def __init__(self, build, cable, scene, seed):
        self.build, self.cable, self.scene, self.seed = build, cable, scene, seed
        self.verify = build / "tests/apps/hostnic-verify"
        self.honest = [scene.pair(f"{i}-", "--timeout", ACK_TIMEOUT) for i in range(WITNESSES)]
        port = scene.ports.next()
        self.honest_verify = [subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                               stderr=subprocess.STDOUT, text=True, process_group=0)
                              for command in self.verify_pair(port, "--rounds", 1000000, "--timeout-seconds", 120, "--ack-timeout", ACK_TIMEOUT)]
        self.pids = [[active.process.pid for active, _ in self.honest] + [self.honest_verify[1].pid],
                     [passive.process.pid for _, passive in self.honest] + [self.honest_verify[0].pid]]
        self.sacrificed = [Group(lambda: self.verify_pair(scene.ports.next(), "--rounds", 1000, "--timeout-seconds", 20, "--qps", 4))]
        for service, program in (("UC", "ib_write_bw"), ("UD", "ib_send_bw"), ("RC", "ib_write_bw"), ("RC", "ib_send_bw")):
            self.sacrificed.append(Group(lambda s=service, p=program: self.perftest(p, s)))

    def verify_pair(self, port, *arguments):
        near, far = self.cable.hosts
        common = ["--seed", self.seed, "--max-bytes", "64k", *arguments]
        ask = " ".join(map(str, near.run(self.verify, "--connect", f"{far.exchange_address}:{port}", *common)))
        return (far.run(self.verify, "--listen", port, *common), ["sh", "-c", f"sleep 0.5; exec {ask}"])

    def perftest(self, program, service):
        near, far = self.cable.hosts
        command = [program, "-F", "-c", service, "-s", "1024", "-D", "10", "-l", "1", "-p", self.scene.ports.next()]
        ask = " ".join(map(str, near.run(*command, far.exchange_address)))
        return (["timeout", "30", *far.run(*command)], ["sh", "-c", f"sleep 1; exec timeout 30 {ask}"])

    def plan(self):
        return json.dumps({
            "interface": "veth2", "seed": self.seed, "hostnic": str(self.build / "hostnic"),
            "switch": {"namespace": self.cable.switch, "ports": PORTS[:2]},
            "hosts": [{"address": host.address, "mac": self.cable.mac_of(host), "socket": str(host.socket), "honest": pids}
                      for host, pids in zip(self.cable.hosts, self.pids)]})

    def check(self):
        for host in self.cable.hosts:
            log = host.log.read_text(errors="replace")
            if host.process.poll() is not None or SANITIZERS.search(log):
                raise Wrong(f"hostnicd {host.number}: status {host.process.poll()}: {log[-4000:]}")
        for active, _ in self.honest:
            active.expect_running()
        if any(process.poll() is not None for process in self.honest_verify):
            said = [process.communicate(timeout=60)[0][-3000:] for process in self.honest_verify]  # one ends with the other
            raise Wrong("hostnic-verify: " + "; ".join(said))

    def rounds(self):
        return [active.round() for active, _ in self.honest]

    def attack(self, end, most):
        """How many frames were sent."""
        inside = ["ip", "netns", "exec", self.cable.liar, sys.executable]
        # Before the programs for the processor, as another machine would be.
        attacker = subprocess.Popen(["nice", "-n", "-10", *inside, HOSTS / "frame_attacker.py", self.plan()],
                                    stdout=subprocess.PIPE, text=True)
        floods = Group(lambda: [[*inside, HOSTS / "arp_liar.py", "veth2", "flood", 2]])
        sent = 0
        try:
            while time.monotonic() < end and sent < most:
                line = attacker.stdout.readline()
                if line == "":
                    raise Wrong(f"the attacker ended: {attacker.wait()}")
                sent = int(line)
                for group in self.sacrificed:
                    group.look()
                if sent // 50000 % 5 == 4:  # a fifth of the time
                    floods.look()
                self.check()
        finally:
            attacker.kill()
            attacker.wait()
            floods.stop()
        start, before = time.monotonic(), self.rounds()
        for active, _ in self.honest:
            active.goes_on()
        print(f"     {sent} frames ({self.cable.name}), rounds of honest programs meanwhile {before}; two more rounds of each "
              f"{time.monotonic() - start:.2f} s after the last frame; programs begun to be attacked: "
              f"{[group.begun for group in self.sacrificed]}", flush=True)
        return sent

    def stop(self):
        for group in self.sacrificed:
            group.stop()
        for process in self.honest_verify:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def counted(scene):
    names = ("rx_parse_error", "rx_icrc_error", "rx_unknown_qp", "rx_wrong_tag", "rx_wrong_service", "rx_not_ours",
             "out_of_window", "duplicate_request", "nak_sent")
    return ", ".join(f"{name} {sum(scene.counter(host, name) for host in scene.cable.hosts)}" for name in names)


def soak_frames(build, daemons, results, seed, end, most):
    if os.geteuid() != 0:
        results.fail("frames", "needs root")
        return
    ports, total, start = Ports(), 0, time.monotonic()
    for i, driver in enumerate(DRIVERS, 1):
        cable = SwitchCable(build, 1500, driver, driver)
        cable.build, cable.witness = build, build / "tests/apps/hostnic-witness"
        for host in cable.hosts:
            host.daemon_build = daemons
        scene = frames = None
        try:
            cable.set_up()
            cable.start_daemons()
            scene = Scene(cable, ports)
            frames = Frames(build, cable, scene, seed)
            total += frames.attack(start + (end - start) * i / len(DRIVERS), most * i // len(DRIVERS) - total)
            frames.check()
            print(f"     {counted(scene)}", flush=True)
            results.passed += 1
        except (Wrong, CannotRun, RuntimeError) as error:
            results.fail(f"frames, {driver}", f"{error}\n{cable.logs()}")
        finally:
            if frames is not None:
                frames.stop()
            if scene is not None:
                scene.stop()
            for problem in cable.stop_daemons():
                results.fail(f"frames, {driver}", problem)
            cable.take_down()
    print(f"{total} hostile frames")
