# SPDX-License-Identifier: BSD-3-Clause
"""Labs where something is other than on a laptop: as root of a user namespace, in a chroot, in another lab, with few
huge pages, few descriptors, or with standard descriptors closed."""

import os
import sys
from pathlib import Path

from command_cases import output_has, shell_quote
from harness import HERE, Case
from huge_page_cases import TOOLS, why_not

# Each host has its device, and its port is up.
IN_EACH = "for host in 1 2; do hostnic on $host -- ibv_devinfo || exit 1; done"
EACH_HAS_ONE = output_has(r"^(hca_id:\s+hnic0\n(?:(?!hca_id)(.|\n))*PORT_ACTIVE(?:(?!hca_id)(.|\n))*){2}$")
HOSTS = ["--hosts", "2"]

# Each choice of standard descriptors; the word says that the programs ran to the end, by a way that needs none.
CLOSED = """
for closed in '<&-' '>&-' '2>&-' '<&- >&-' '<&- 2>&-' '>&- 2>&-' '<&- >&- 2>&-'; do
  for lab in '--nics 2 --' '--hosts 2 -- hostnic on 1 --'; do
    file=$(mktemp)
    eval "$0 lab $lab sh -c 'ibv_devinfo > $file; echo status \\$? >> $file'" "$closed" || echo "lab: $?"
    grep -c PORT_ACTIVE $file; grep status $file; rm $file
  done
done
"""

FEW_DESCRIPTORS = """
for few in 12 16 20 24 28 32; do
  (ulimit -n $few; "$0" lab -- true) > "$1" 2>&1; echo "status $? lines $(wc -l < "$1")"; cat "$1"; rm "$1"
done
"""

FEW_FOR_HOSTS = """
for few in 10 14 18 20 22 24 28; do
  (ulimit -n $few; "$0" lab -q --hosts 2 -- true) > "$1" 2>&1; echo "status $?"; grep -c 'see ulimit -n' "$1" || cat "$1"; rm "$1"
done
"""

# EAL wants more than hostnicd has counted: as if others had taken some in between.
FEWER_THAN_COUNTED = """
directory=$(mktemp -d)
hostnicd -m 400 -- --no-prompt --socket $directory/socket & daemon=$!
for i in $(seq 200); do hostnic devices --socket $directory/socket >/dev/null 2>&1 && break; sleep 0.05; done
hostnic run --socket $directory/socket -- ibv_devinfo
kill $daemon; wait $daemon; echo status $?; ls $directory; rmdir $directory
"""

# The client is of one lab and the server of another. It waits until the server listens: `ss` shows all of TCP.
ANOTHER_LAB = """
"$0" lab -- ib_write_bw -F -n 100 -p "$1" > /dev/null 2>&1 & server=$!
port=$(printf ':%04X 0*:0* 0A' "$1")
for i in $(seq 600); do grep -q "$port" /proc/net/tcp /proc/net/tcp6 && break; sleep 0.1; done
"$0" lab -- ib_write_bw -F -n 100 -p "$1" 127.0.0.1; echo client $?
kill $server 2> /dev/null; wait $server; true
"""
# No answer comes, and nothing ends by itself.
ANOTHER_LAB_BY_UD = """
"$0" lab -- ib_send_lat -c UD -d hnic1 -n 100 -p "$1" > /dev/null 2>&1 & server=$!
port=$(printf ':%04X 0*:0* 0A' "$1")
for i in $(seq 600); do grep -q "$port" /proc/net/tcp /proc/net/tcp6 && break; sleep 0.1; done
said=$(mktemp)
"$0" lab -- ib_send_lat -c UD -d hnic0 -n 100 -p "$1" 127.0.0.1 > "$said" 2>&1 & client=$!
for i in $(seq 600); do grep -q "another lab" "$said" && break; sleep 0.1; done
kill $client $server 2> /dev/null; wait $client $server; cat "$said"; rm "$said"
"""

# More than one hostnicd takes, and less than two.
PAGES_FOR_ONE = 130


def few_descriptors_are_said(output):
    """Either one line that says it, or it works."""
    if "status 0" in output.splitlines()[0]:
        return "12 descriptors suffice: this tests nothing"
    for line in output.splitlines():
        if line.startswith("status") and line not in ("status 1 lines 1", "status 0 lines 0"):
            return f"not one line, or another status: {line}"
        if not line.startswith("status") and "see ulimit -n" not in line:
            return f"another line: {line}"
    return None


def setup_cases(maker, everybody):
    root = os.geteuid() == 0
    user = everybody[-1]
    for port in ("udp", "wire"):
        yield user.case(f"as root of a user namespace --port {port}", [
            *user.prefix, "unshare", "-Ur", *user.lab([*HOSTS, "--port", port], ["sh", "-c", IN_EACH])[len(user.prefix):]],
                        EACH_HAS_ONE, quick=port == "udp")
    for who in everybody:
        inner = shell_quote(who.lab(HOSTS, ["sh", "-c", IN_EACH])[len(who.prefix):])
        for name, outer in (("of a lab with hosts", [*HOSTS, "--", "hostnic", "on", "2", "--"]),
                            ("of a plain lab", ["--"]), ("beside hosts", [*HOSTS, "--"])):
            yield who.case(f"a lab with hosts in the command {name}",
                           [*who.prefix, who.build / "hostnic", "lab", *outer, "sh", "-c", inner], EACH_HAS_ONE,
                           quick=name == "of a plain lab")
    yield user.case("standard descriptors are closed", [
        *user.prefix, "env", f"PATH={user.build}:/usr/bin:/bin", "sh", "-c", CLOSED, user.build / "hostnic"],
                    output_has(r"^(2\nstatus 0\n1\nstatus 0\n){7}$"), limit_s=200)
    scratch = user.home or Path("/tmp")
    yield user.case("few descriptors (ulimit -n)", [
        *user.prefix, "sh", "-c", FEW_DESCRIPTORS, user.build / "hostnic", scratch / f"few-descriptors-{os.getpid()}"],
                    few_descriptors_are_said)
    yield user.case("few descriptors for hosts (ulimit -n)", [
        *user.prefix, "sh", "-c", FEW_FOR_HOSTS, user.build / "hostnic", scratch / f"few-for-hosts-{os.getpid()}"],
                    output_has(r"^(status 1\n[1-9]\n){7}"))
    yield user.case("the server of another lab", [
        *user.prefix, "sh", "-c", ANOTHER_LAB, user.build / "hostnic", maker.next_port()],
                    output_has(r"client [1-9](.|\n)*queue pair 0x[0-9a-f]{6} of ::ffff:127.77.0.\d, .* is none of this "
                               r"lab's: .*another lab"), quick=True)
    yield user.case("the server of another lab, by UD", [
        *user.prefix, "sh", "-c", ANOTHER_LAB_BY_UD, user.build / "hostnic", maker.next_port()],
                    output_has(r"hnic1 has dropped 1 datagram for queue pairs that it does not have, the last one from "
                               r"here for QP 0x[0-9a-f]{6}: .*another lab"))
    yield Case("root in a chroot [hosts]", [sys.executable, HERE / "in_chroot.py", maker.build], 120, True,
               output_has(r"in the chroot\n(hca_id:\s+hnic0\n(?:(?!hca_id)(.|\n))*PORT_ACTIVE(.|\n)*){2}in the chroot\n"
                          r"as before\n"),
               skip=None if root else "needs root")
    yield Case("huge pages for one hostnicd of two [hosts]", [
        sys.executable, TOOLS / "huge_pages.py", str(PAGES_FOR_ONE), *maker.lab(HOSTS, ["sh", "-c", IN_EACH])], 120, True,
               EACH_HAS_ONE, skip=why_not())
    path = f"PATH={maker.build}:{os.environ.get('PATH', '/usr/bin:/bin')}"
    yield Case("fewer huge pages than were counted", [
        sys.executable, TOOLS / "huge_pages.py", str(PAGES_FOR_ONE), "env", path, "sh", "-c", FEWER_THAN_COUNTED], 120,
               False, output_has(r"hca_id:\s+hnic0(.|\n)*PORT_ACTIVE(.|\n)*status 0\n--- stderr"
                                 r"(.|\n)*gone: starting again without"), skip=why_not())
