# SPDX-License-Identifier: BSD-3-Clause
"""Labs with hosts (hostnic lab --hosts), as root and as an ordinary user: stock programs between
hosts by address, programs that nothing is preloaded into, what is refused, what is left behind."""

import os
import shutil
import sys
from pathlib import Path

import ordinary_user
from command_cases import output_has, shell_quote
from harness import HERE, Case, no_trouble, perftest_rows, verify_is_ok
from setup_cases import setup_cases

PORTS = ("udp", "af_packet", "wire")

# Statically linked: it sees what is in the file system, and nothing that the library shows.
STATIC = r"""
#include <stdio.h>
#include <unistd.h>
int main(void) {
  char line[64] = "";
  FILE *file = chdir("/sys/class/infiniband") ? NULL : fopen("hnic0/ports/1/gids/0", "r");
  if (file == NULL || fgets(line, sizeof line, file) == NULL) return 1;
  fputs(line, stdout);
  file = fopen("/sys/class/infiniband/hnic0/ports/1/counters/port_xmit_packets", "r");
  if (file == NULL || fgets(line, sizeof line, file) == NULL) return 2;
  printf("packets %s", line);
  return 0;
}
"""

# Arguments of hostnic, and what the one line that refuses them says.
REFUSED = {
    "no hosts": (["lab", "--hosts", "0", "--", "true"], r"--hosts 0: use 1 to 64"),
    "more hosts than the wire has ends": (["lab", "--hosts", "17", "--port", "wire", "--", "true"], r"1 to 16"),
    "a port that is none": (["lab", "--hosts", "2", "--port", "tcp", "--", "true"], r"udp, af_packet or wire"),
    "a port without hosts": (["lab", "--port", "udp", "--", "true"], r"only with --hosts"),
    "an IB MTU for hosts": (["lab", "--hosts", "2", "--mtu", "256", "--", "true"], r"MTU of their interfaces, 336"),
    "a number of NICs for hosts": (["lab", "--hosts", "2", "--nics", "2", "--", "true"], r"each host has one NIC"),
    "an address for hosts' NICs": (["lab", "--hosts", "2", "--nic", "ip=10.0.0.1/24", "--", "true"], r"lab gives ip"),
    "no network": (["lab", "--hosts", "2", "--addresses", "10.1.2.3", "--", "true"], r"not a network such as"),
    "a network of loopback": (["lab", "--hosts", "2", "--addresses", "127.1.0.0/24", "--", "true"], r"of its own"),
    "a network that is too small": (["lab", "--hosts", "3", "--addresses", "10.1.0.0/30", "--", "true"], r"room for 2"),
    "an impairment that is none, in hosts": (["lab", "--hosts", "2", "--impair", "drop 5", "--", "true"], r"column 6"),
    "an unknown key for hosts' NICs": (["lab", "--hosts", "2", "--nic", "policy=none", "--", "true"], r"policy"),
    "hosts without a command": (["lab", "--hosts", "2"], r"no command"),
    "a host that is not there": (["lab", "--hosts", "2", "--", "{hostnic}", "on", "host3", "true"], r"host1 to host2"),
    "a host outside of any lab": (["on", "1", "--", "true"], r"which lab"),
    "a host of a lab that has ended": (["on", "--lab", "/nonexistent", "1", "--", "true"], r"it has ended"),
}

# What COMMAND does, and the lab's exit status.
STATUSES = (("exit 3", 3), ("kill -9 $$", 137), ("hostnic on 1 -- sh -c 'exit 9'", 9),
            ("hostnic on host2 'kill $$'", 143), ("hostnic on 1 -- /nonexistent", 127),
            ("echo word | hostnic on 2 -- grep -q word", 0), ("hostnic on 2 -- hostnic on 1 -- sh -c 'exit 4'", 4))

ENVIRONMENT = ("echo $HOSTNIC_HOSTS $HOSTNIC_ADDRESSES; for host in $(echo $HOSTNIC_HOSTS | tr , ' '); do "
               "hostnic on $host -- sh -c 'echo in $(hostname) $(ibv_devices | grep -c hnic) "
               "$(ls /sys/class/infiniband) "
               "$(ls /sys/class/net | tr \"\\n\" \" \") $(getent hosts host3) $(cat /sys/class/net/eth0/mtu)'; done; "
               # As ssh has it: words are a line for a shell.
               "hostnic on 2 A=b\\; export A\\; echo '$A'  '\"c  d\"'")

NO_NAMESPACES = ("echo 0 > /proc/sys/user/max_user_namespaces; "
                 "exec setpriv --bounding-set=-all --inh-caps=-all -- {hostnic} lab --hosts 2 -- true")
# As in a container, where no further sysfs may be mounted.
COVERED_SYS = "mount -t tmpfs none /sys/firmware && exec {lab}"


class User:
    """Who runs the cases, and where what he needs lies."""

    def __init__(self, maker, name, home=None):
        self.maker, self.name, self.home = maker, name, home
        self.build = home or maker.build
        self.verify = (home or maker.apps) / "tests/apps/hostnic-verify"
        self.scripts = home or HERE
        self.python = ordinary_user.python() if home else sys.executable
        self.prefix = ordinary_user.prefix() if home else []
        self.environment = ordinary_user.environment(home) if home else {}

    def place(self, program):
        return (self.home or self.maker.apps) / program

    def lab(self, arguments, command):
        return [*self.prefix, *self.maker.lab_of(self.build, arguments, command)]

    def on(self, host, command):
        return [self.build / "hostnic", "on", host, "--", *command]

    def pair(self, port, server, client):
        return [self.python, self.scripts / "pair.py", "--port", str(port), *map(str, self.on("host1", server)), "----",
                *map(str, self.on("host2", client))]

    def case(self, name, command, check, quick=False, limit_s=120, skip=None):
        # CI runs what root can do once more as the ordinary user.
        return Case(f"{name} [hosts, {self.name}]", command, limit_s, quick, check, self.environment,
                    slow=self.name == "root" and not quick, skip=skip)


def users(maker, *more):
    """Who there is; `more` are programs that are copied for those who can't reach the build directory."""
    if os.geteuid() != 0:
        return [User(maker, "ordinary user")]
    everybody = [User(maker, "root")]
    if ordinary_user.reason_against() is None:
        files = {name: maker.build / name for name in ("hostnic", "hostnicd", "libhostnic-verbs.so")}
        files.update({name: maker.apps / name for name in ("tests/apps/hostnic-verify", *more)})
        files.update({name: HERE / name for name in ("pair.py", "hosts_lifetime.py")})
        everybody.append(User(maker, "ordinary user", ordinary_user.copy(files)))
    return everybody


def both(*checks):
    return lambda output: next((why for why in (check(output) for check in checks) if why is not None), None)


def perftest(user, title, program, lab, options, check=None, quick=False):
    """By address, without --device."""
    port = user.maker.next_port()
    command = [program, "-F", *options, "-p", str(port)]
    return user.case(f"{title} {' '.join(lab)}", user.lab(["--hosts", "2", *lab],
                     user.pair(port, command, [*command, "10.77.0.1"])), both(perftest_rows(1), *(check or [])), quick)


def port_cases(user, port):
    lab = ["--port", port]
    yield perftest(user, "ib_write_bw", "ib_write_bw", lab, ["-n", "500"], quick=True)
    yield perftest(user, "ib_send_lat", "ib_send_lat", lab, ["-n", "200"])
    # The MTU of the interfaces; the wire has none, and NICs there the largest.
    yield perftest(user, "ib_read_bw", "ib_read_bw", [*lab, "--mtu", "9000"], ["-n", "100"],
                   [output_has(r"Mtu\s*: 4096")])
    verify = [user.verify, "--seed", user.maker.seed, "--timeout-seconds", 30, "--qps", 2, "--max-bytes", "256k"]
    number = user.maker.next_port()
    yield user.case(f"hostnic-verify --port {port}, loss 1%", user.lab(
        ["--hosts", "2", "--loss", "1%", *lab],
        user.pair(number, [*verify, "--listen", number], [*verify, "--connect", f"10.77.0.1:{number}"])),
                    verify_is_ok, quick=port == "udp")
    # Servers on both hosts have the same port, and one of any address.
    line = ("hostnic on 1 -- rping -s -C 5 & hostnic on 2 -- rping -s -C 5 & "
            "for host in 1 2; do for i in $(seq 100); do "
            "hostnic on 3 -- rping -c -a 10.77.0.$host -C 5 -v && break; sleep 0.2; done; done; wait")
    yield user.case(f"rping --port {port}", user.lab(["--hosts", "3", *lab], ["sh", "-c", line]),
                    output_has(r"(rdma-ping-4(.|\n)*){2}"), quick=port == "wire")
    yield user.case(f"rping to nobody --port {port}", user.lab(
        ["--hosts", "2", *lab], ["sh", "-c", "hostnic on 1 -- rping -c -a 10.77.0.99; test $? -ne 0"]),
                    output_has(r"ADDR_ERROR, error -1(10|13)\b"), quick=port == "udp", limit_s=30)


def static_case(user, port):
    scratch = user.home or Path("/tmp")
    source = scratch / f"hosts_static_{port}_{os.getpid()}"
    make = f"cat > {source}.c <<'END'\n{STATIC}END\ncc -static -o {source} {source}.c || exit 1\n"
    number = user.maker.next_port()
    # One that hostnicd has written after packets went, which takes a second.
    run = (f"hostnic on 2 -- {source} 2>/dev/null && hostnic on 1 -- ib_write_bw -F -n 100 -p {number} >/dev/null & "
           f"for i in $(seq 100); do hostnic on 2 -- ib_write_bw -F -n 100 -p {number} host1 >/dev/null && break; "
           f"sleep 0.2; done; for i in $(seq 100); do hostnic on 2 -- {source} 2>/dev/null | grep 'packets [1-9]' && "
           "break; sleep 0.1; done; wait")
    line = (f"{make}{shell_quote(user.lab(['--hosts', '3', '--port', port], ['sh', '-c', run])[len(user.prefix):])}; "
            f"s=$?; rm -f {source} {source}.c; exit $s")
    return user.case(f"a static program reads /sys/class/infiniband --port {port}", [*user.prefix, "sh", "-c", line],
                     output_has(r"0000:0000:0000:0000:0000:ffff:0a4d:0002\npackets 0\n(.|\n)*packets [1-9]"),
                     quick=port == "udp")


def one_line_case(user):
    """As README shows it: the client is there before the server listens. Not with sanitizers, with which a server
    that is kept waiting starts after the client's half second."""
    program = f"ib_write_bw -F -n 500 -p {user.maker.next_port()}"
    line = (f"hostnic on 1 -- sh -c 'sleep 0.2; exec {program}' & hostnic on 2 -- {program} host1; client=$?; "
            "test $client = 0 || kill $!; wait $! && exit $client")
    return user.case("server & client in one line", user.lab(["--hosts", "2"], ["sh", "-c", line]), no_trouble)


def pairs_case(user):
    """Between any two of four."""
    program = f"ib_write_bw -F -n 50 -p {user.maker.next_port()}"
    line = ("for server in 1 2 3 4; do for client in 1 2 3 4; do test $server = $client && continue; "
            f"hostnic on $server -- {program} >/dev/null & "
            "for i in $(seq 200); do "
            f"hostnic on $client -- {program} host$server >/dev/null 2>&1 && break; sleep 0.1; done; "
            "wait $! && echo from $client to $server; done; done")
    return user.case("ib_write_bw between any two of four", user.lab(["--hosts", "4"], ["sh", "-c", line]),
                     output_has(r"(from \d to \d\n){12}"), limit_s=200)


def gids_case(user):
    """What a program finds in the GID table stays: the addresses are good when it begins."""
    line = ("cat /sys/class/infiniband/hnic0/ports/1/gids/1; sleep 4; cat /sys/class/infiniband/hnic0/ports/1/gids/1")
    return user.case("hosts' GIDs are there from the beginning", user.lab(
        ["--hosts", "1"], user.on("1", ["sh", "-c", line])), output_has(r"(?m)^(fe80:[0-9a-f:]+)\n\1$"), quick=True)


def command_cases(user):
    hostnic = user.build / "hostnic"
    yield user.case("what hosts have, and COMMAND is told", user.lab(
        ["--hosts", "3", "--addresses", "192.168.7.0/24", "--mtu", "4200"], ["sh", "-c", ENVIRONMENT]), output_has(
            r"host1,host2,host3 192.168.7.1,192.168.7.2,192.168.7.3\n"
            r"(in host\d 1 hnic0 eth0 lo 192.168.7.3 +host3 4200\n){3}b c  d\n"), quick=True)
    for command, status in STATUSES:
        line = f"{shell_quote(user.lab(['--hosts', '2'], ['sh', '-c', command])[len(user.prefix):])}; echo status $?"
        yield user.case(f"the exit status of `{command}`", [*user.prefix, "sh", "-c", line],
                        output_has(rf"status {status}\n"), quick=status == 9)
    yield user.case("hosts lose packets as their labs are told", user.lab(
        ["--hosts", "2", "--impair", "drop nth 2 kind data", "--nic", "policy=go-back-n"],
        ["sh", "-c", "hostnic on 2 hostnic ctl show impair && hostnic on 1 hostnic ctl show nic"]),
                    output_has(r"hnic0 rx drop nth 2 kind data(.|\n)*policy go-back-n"))
    for port in PORTS:
        yield user.case(f"labs with hosts leave nothing --port {port}", [
            *user.prefix, "env", f"PATH={user.build}:/usr/bin:/bin:/usr/sbin:/sbin", user.python,
            user.scripts / "hosts_lifetime.py", hostnic, "--count", "4", "--port", port],
                        output_has(r"4 labs left nothing"), quick=port == "udp", limit_s=200)


def refused_cases(build):
    for name, (arguments, pattern) in REFUSED.items():
        words = [str(word).format(hostnic=build / "hostnic") for word in arguments]
        line = f"{shell_quote([build / 'hostnic', *words])}; s=$?; test $s -ne 0 && test $s -lt 126"
        yield Case(f"refuses {name}", ["sh", "-c", line], 30, True, output_has(pattern))


def namespace_cases(everybody):
    """Machines that forbid something."""
    user = everybody[-1]
    line = f"({NO_NAMESPACES.format(hostnic=user.build / 'hostnic')}); test $? = 1"
    yield user.case("one line says that namespaces are forbidden", [*user.prefix, "unshare", "-Ur", "sh", "-c", line],
                    output_has(r"\nhostnic lab: --hosts needs namespaces.*max_user_namespaces is 0; as root"),
                    quick=True, skip=None if shutil.which("setpriv") else "setpriv is not installed (util-linux)")
    lab = shell_quote(user.lab(["--hosts", "2"], ["sh", "-c", "hostnic on 1 -- sh -c 'ls /sys/class/infiniband; "
                                                              "ibv_devinfo; ls /sys/class/net'; true"]))
    yield user.case("hosts where no sysfs can be mounted", ["unshare", "-m", "sh", "-c", COVERED_SYS.format(lab=lab)],
                    output_has(r"hnic0\n(.|\n)*PORT_ACTIVE(.|\n)*/sys/class/net"),
                    skip=None if os.geteuid() == 0 and user.home else "needs root to cover a part of /sys")


def hosts_cases(maker):
    everybody = users(maker)
    for user in everybody:
        for port in PORTS:
            yield from port_cases(user, port)
            yield static_case(user, port)
        yield one_line_case(user)
        yield pairs_case(user)
        yield gids_case(user)
        yield from command_cases(user)
    yield from refused_cases(maker.build)
    yield from namespace_cases(everybody)
    yield from setup_cases(maker, everybody)

