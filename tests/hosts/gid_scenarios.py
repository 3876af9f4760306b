# SPDX-License-Identifier: BSD-3-Clause
"""Addresses of the NIC's interface beside its own come and go, and with them GIDs."""

import re
import subprocess

from harness import pair
from run_hosts_tests import ip
from scene import NO_ANSWER, PATIENCE_S, RETRY_EXC, Wrong, wait_for


def gid_of(host, index):
    """The GID as another process reads it from sysfs; zeros are None."""
    read = subprocess.run(
        host.run("cat", f"/sys/class/infiniband/hnic0/ports/1/gids/{index}"), capture_output=True,
        text=True, check=False, timeout=PATIENCE_S).stdout.strip()
    if not re.fullmatch("([0-9a-f]{4}:){7}[0-9a-f]{4}", read):
        raise Wrong(f"GID {index} reads {read!r}")
    return None if set(read) <= set("0:") else read


def link_local_gids(scene):
    """Both have the address that the kernel makes itself, when no host has objected to it: entries
    that come after it have the same index at both."""
    for host in scene.cable.hosts:
        wait_for("the link-local address is a GID", lambda host=host: any(
            (gid_of(host, index) or "").startswith("fe80:") for index in range(4)))


def other_address_comes_and_goes(scene):
    """A second address of the interface is a GID of its own while it is there."""
    def address(what, last):
        for host in scene.cable.hosts:
            ip("-n", host.namespace, "addr", what, f"10.7.0.{host.number + last}/24", "dev",
               host.interface)

    def written_from(index):
        """ib_write_bw between the GIDs of this index."""
        port = scene.ports.next()
        command = ["ib_write_bw", "-F", "-x", index, "-n", 200, "-p", port]
        return subprocess.run(
            pair(port, scene.far.run(*command),
                 scene.near.run(*command, scene.far.exchange_address)),
            capture_output=True, text=True, check=False, timeout=PATIENCE_S)

    def gid(last):
        return f"0000:0000:0000:0000:0000:ffff:0a07:00{last:02x}"

    def index_of(last):
        found = [index for index in range(16) if gid_of(scene.near, index) == gid(last)]
        return found[0] if found else None

    link_local_gids(scene)
    active, passive = scene.pair()
    before = [gid_of(scene.near, index) for index in range(4)]
    starts = {witness: len(witness.lines()) for witness in (active, passive)}
    address("add", 1)
    for witness, start in starts.items():
        witness.expect("event GID table change, .* 3 gids", start)
    index = wait_for("the address is a GID", lambda: index_of(1))
    if before != [gid_of(scene.near, i) if i != index else None for i in range(4)]:
        raise Wrong("another entry has changed")
    for host in scene.cable.hosts:
        scene.logged(host, "10.7.0.[12] of veth[01] is a GID now")
    scene.shows(scene.near, "10.7.0.1")
    done = written_from(index)
    if done.returncode != 0:
        raise Wrong(f"ib_write_bw -x {index}: {done.stdout}{done.stderr}")
    since = len(active.lines())
    address("del", 1)
    active.expect("event GID table change, .* 2 gids", since)
    if gid_of(scene.near, index) is not None:
        raise Wrong("the address is a GID although it is gone")
    if written_from(index).returncode == 0:
        raise Wrong("ib_write_bw sends from a GID of zeros")
    # Another address gets an entry that was never used; this one its own again.
    address("add", 3)
    other = wait_for("the other address is a GID", lambda: index_of(3))
    address("add", 1)
    if wait_for("the address is a GID again", lambda: index_of(1)) != index or other == index:
        raise Wrong("an entry was used again while others were free")
    address("del", 3)
    active.goes_on()


def gid_goes_under_connection(scene):
    """What is sent from an address that is gone is lost: the queue pair survives what its retry
    time covers."""
    def address(what):
        ip("-n", scene.near.namespace, "addr", what, "10.7.0.1/24", "dev", scene.near.interface)

    link_local_gids(scene)
    ip("-n", scene.far.namespace, "addr", "add", "10.7.0.2/24", "dev", scene.far.interface)
    address("add")
    index = wait_for("the address is a GID", lambda: next(
        (i for i in range(16) if (gid_of(scene.near, i) or "").endswith("0a07:0001")), None))
    far_index = wait_for("the peer's is one", lambda: next(
        (i for i in range(16) if (gid_of(scene.far, i) or "").endswith("0a07:0002")), None))
    if index != far_index:
        raise Wrong(f"the indices differ: {index}, {far_index}")
    patient, _ = scene.pair("patient-", "--timeout", 19, "--gid-index", index)
    hasty, _ = scene.pair("hasty-", "--timeout", 12, "--retry-cnt", 2, "--gid-index", index)
    address("del")
    hasty.fails(RETRY_EXC, NO_ANSWER)
    address("add")
    patient.goes_on()
    address("del")
    ip("-n", scene.far.namespace, "addr", "del", "10.7.0.2/24", "dev", scene.far.interface)
