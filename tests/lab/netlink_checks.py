#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares what iproute2's `rdma` shows of a lab's devices with what hostnicd says of them:

  netlink_checks.py objects HOSTNIC    in a lab, or a host of one, whose programs keep their queue pairs
  netlink_checks.py cm HOSTNIC         in a lab with rdma_cm ids
  netlink_checks.py refused HOSTNIC    in a lab: what would change something, and what there is not
  netlink_checks.py uverbs HOSTNIC     in a lab: the character device that scripts look for
"""

import errno
import json
import os
import socket
import stat
import struct
import subprocess
import sys
from pathlib import Path

from harness import may_leak

NETLINK_RDMA = 20


def run(*command, status=0):
    # `rdma` leaves without freeing what it has.
    command = may_leak(list(map(str, command)))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == status, f"{command}: {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def rdma(*words):
    """As JSON, in which `rdma` ends an empty list with nothing at all."""
    text = run("rdma", "-j", *words)
    return json.loads(text) if text.strip() else []


def ctl(hostnic, command):
    return json.loads(run(hostnic, "ctl", "--json", command))


def devices(hostnic):
    """Names of the devices that this place sees."""
    return [line.split()[0] for line in run("ibv_devices").splitlines()[2:]]


def check_devices(names):
    shown = rdma("dev")
    assert [each["ifname"] for each in shown] == names, (shown, names)
    for each in shown:
        directory = Path("/sys/class/infiniband") / each["ifname"]
        guid = run("cat", directory / "node_guid").strip()
        assert each["node_type"] == "ca" and each["node_guid"] == guid, (each, guid)
        assert each["fw"] == run("cat", directory / "fw_ver").strip(), each
    links = rdma("link")
    assert [each["ifname"] for each in links] == names, links
    for each in links:
        assert each["port"] == 1 and each["state"] == "ACTIVE" and each["physical_state"] == "LINK_UP", each
        assert each["netdev"] in os.listdir("/sys/class/net"), each
        assert each["netdev_index"] == socket.if_nametoindex(each["netdev"]), each
    for text in (run("rdma", "dev"), run("rdma", "link"), run("rdma", "-d", "dev"), run("rdma", "-d", "link")):
        assert all(name in text for name in names), text


def check_qps(hostnic, names):
    said = {qp["qpn"]: qp for qp in ctl(hostnic, "show qp") if qp["nic"] in names}
    shown = {qp["lqpn"]: qp for qp in rdma("res", "show", "qp")}
    assert said and shown.keys() == said.keys(), (shown, said)
    for number, qp in shown.items():
        want = said[number]
        got = (qp["ifname"], qp["rqpn"], qp["state"], qp["type"], qp["pid"], qp["comm"])
        expected = (want["nic"], want["peer_qpn"], want["state"], want["type"].split("/")[0], want["pid"], want["program"])
        assert got == expected, (got, expected)
        one = rdma("res", "show", "qp", "link", f"{qp['ifname']}/1", "lqpn", number)
        assert [each["lqpn"] for each in one] == [number], one
    details = run("rdma", "-dd", "res", "show", "qp")
    assert all(f"peer {qp['peer']}" in details for qp in said.values()), details
    return shown


def check_others(hostnic, names, qps):
    clients = {each["client"]: each for each in ctl(hostnic, "show client") if each["nic"] in names}
    contexts = {each["ctxn"]: each["pid"] for each in rdma("res", "show", "ctx")}
    assert contexts == {number: each["pid"] for number, each in clients.items()}, (contexts, clients)
    mrs = rdma("res", "show", "mr")
    assert len(mrs) == sum(each["memory_regions"] for each in clients.values()), (mrs, clients)
    pds = {(each["ctxn"], each["pdn"]): each for each in rdma("res", "show", "pd")}
    cqs = rdma("res", "show", "cq")
    pids = {each["pid"] for each in clients.values()}
    for each in [*mrs, *pds.values(), *cqs]:
        assert each["pid"] in pids, (each, pids)
    for context, pid in contexts.items():
        # perftest: a domain, in it a region and a queue pair, whose both queues are one or two.
        mine = [each for (of, _), each in pds.items() if of == context]
        assert mine and any(each["users"] >= 2 for each in mine), pds
        assert sum(each["users"] for each in cqs if each["ctxn"] == context) == \
            2 * sum(qp["pid"] == pid for qp in qps.values()), (cqs, qps)
    assert all(each["cqe"] > 0 for each in cqs), cqs
    domains = {(each["pid"], each["pdn"]) for each in pds.values()}
    assert all((each["pid"], each["pdn"]) in domains for each in [*mrs, *qps.values()]), (domains, mrs)
    one = rdma("res", "show", "mr", "dev", mrs[0]["ifname"], "mrn", mrs[0]["mrn"])
    assert [each["mrn"] for each in one] == [mrs[0]["mrn"]], one
    assert rdma("res", "show", "srq") == []
    for summary in rdma("res"):
        name = summary["ifname"]
        counts = {what: sum(each["ifname"] == name for each in of)
                  for what, of in (("mr", mrs), ("cq", cqs), ("pd", pds.values()), ("qp", qps.values()))}
        assert counts.items() <= summary.items(), (summary, counts)
        assert summary["ctx"] == sum(each["nic"] == name for each in clients.values()), summary


def check_counters(names):
    shown = {}
    for link in rdma("statistic"):
        shown.setdefault(link["ifname"], {}).update(link)
    assert list(shown) == names, shown.keys()
    for name in names:
        directory = Path("/sys/class/infiniband") / name / "ports/1/hw_counters"
        listed = set(run("ls", directory).split())
        assert listed <= shown[name].keys(), listed - shown[name].keys()
        for counter in ("tx_packets", "tx_bytes", "rx_packets", "rx_bytes", "retransmitted"):
            if counter in listed:
                assert shown[name][counter] == int(run("cat", directory / counter)), counter
        assert shown[name]["tx_packets"] > 0, shown[name]
    assert rdma("statistic", "show", "link", f"{names[0]}/1")[0]["ifname"] == names[0]
    assert "auto off" in run("rdma", "statistic", "qp", "mode")


def check_system():
    mode = run("rdma", "system").split()[:2]
    hosts = ["netns", "exclusive"], ["netns", "shared"]
    assert mode in (hosts if "HOSTNIC_HOSTS" in os.environ else hosts[1:]), mode


def check_objects(hostnic):
    names = devices(hostnic)
    check_devices(names)
    qps = check_qps(hostnic, names)
    check_others(hostnic, names, qps)
    check_counters(names)
    check_system()
    for program in ("ibstat", "ibv_devinfo"):
        text = run(program, *(["-v"] if program == "ibv_devinfo" else []))
        assert all(name in text for name in names), text


def check_cm(hostnic):
    said = [each for each in ctl(hostnic, "show cm") if each["nic"]]
    shown = rdma("res", "show", "cm_id")
    assert said and len(shown) == len(said), (shown, said)
    for each in said:
        one = next(id for id in shown if id["cm-idn"] == each["id"])
        assert (one["pid"], one["src-addr"], one["ps"]) == (each["pid"], each["source"], "TCP"), (one, each)
        assert one["state"] == "LISTEN" and each["state"] == "listening", (one, each)


def refused(*words):
    """A command of `rdma` that fails, and what is said then."""
    done = subprocess.run(["rdma", *words], capture_output=True, text=True, check=False)
    assert done.returncode != 0, (words, done)
    return done.stdout + done.stderr


def attribute(kind, payload):
    return struct.pack("<HH", 4 + len(payload), kind) + payload + b"\0" * (-len(payload) % 4)


def ask(connection, operation, flags, attributes=b""):
    """By hand, as programs without libmnl do it: the datagrams of the answer."""
    header = struct.pack("<IHHII", 16 + len(attributes), (5 << 10) + operation, flags, 7, 0)
    connection.sendto(header + attributes, (0, 0))
    answers = []
    connection.setblocking(False)
    try:
        while True:
            answers.append(connection.recv(8192))
    except BlockingIOError:
        return answers


def check_refused(hostnic):
    name = devices(hostnic)[0]
    assert "made by its configuration" in refused("link", "add", "rxe0", "type", "rxe", "netdev", "lo")
    assert "nothing deletes one" in refused("link", "delete", name)
    assert "named by configuration" in refused("dev", "set", name, "name", "other0")
    assert "netns mode" in refused("system", "set", "netns", "exclusive")
    assert "no counters to bind" in refused("statistic", "qp", "set", "link", f"{name}/1", "auto", "type", "on")
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_RDMA) as connection:
        connection.bind((0, 0))
        assert connection.getsockname()[0] != 0
        error = struct.unpack_from("<i", ask(connection, 700, 5)[0], 16)[0]
        assert error == -errno.EOPNOTSUPP, error
        listed = ask(connection, 1, 0x305)
        assert name.encode() in listed[0] and len(listed) == 1, listed
        one = ask(connection, 15, 5, attribute(1, struct.pack("<I", 0)) + attribute(69, b"uverbs\0"))
        assert b"uverbs0" in one[0], one
    # Other families are the kernel's.
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as connection:
        connection.bind((0, 0))
    run("ip", "link", "show", "lo")


def check_uverbs(hostnic):
    path = "/dev/infiniband/uverbs0"
    assert os.access(path, os.R_OK | os.W_OK) and stat.S_ISCHR(os.stat(path).st_mode)
    assert "uverbs0" in os.listdir("/dev/infiniband")
    assert not os.access("/dev/infiniband/uverbs9", os.F_OK)
    try:
        os.open(path, os.O_RDWR)
    except OSError as error:
        assert error.errno == errno.ENXIO, error
    else:
        raise AssertionError(f"{path} was opened")


if __name__ == "__main__":
    what, program = sys.argv[1:]
    {"objects": check_objects, "cm": check_cm, "refused": check_refused, "uverbs": check_uverbs}[what](program)
    print("rdma agrees with hostnic")
