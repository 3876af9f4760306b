# SPDX-License-Identifier: BSD-3-Clause
"""Personalities (`--like`): what stock programs and the conformance suite see of devices that are like others."""

from command_cases import output_has, shell_quote
from fault_cases import has_all
from harness import Case, may_leak, quoted

# Of each personality, what `ibv_devinfo -v` must say of the first device.
DEVINFO = {
    "mlx5": [r"hca_id:\s+mlx5_0(.|\n)*hca_id:\s+mlx5_1", r"max_qp_rd_atom:\s+16\b", r"local_ca_ack_delay:\s+16\b",
             r"MEM_MGT_EXTENSIONS", r"vendor_id:\s+0x2484e\b", r"GID\[\s*0\]:\s+fe80:\S*, RoCE v1",
             r"GID\[\s*1\]:\s+fe80:\S*, RoCE v2", r"GID\[\s*2\]:\s+0000:\S*:ffff:7f4d:0001, RoCE v1",
             r"GID\[\s*3\]:\s+::ffff:127\.77\.0\.1, RoCE v2"],
    "rxe": [r"hca_id:\s+rxe0(.|\n)*hca_id:\s+rxe1", r"max_cqe:\s+32767\b", r"max_ah:\s+32767\b", r"max_msg_sz:\s+0x800000\b",
            r"timestamp_mask not supported", r"GID\[\s*0\]:\s+fe80:\S*, RoCE v2",
            r"GID\[\s*1\]:\s+::ffff:127\.77\.0\.1, RoCE v2", r"rc_odp_caps:\s+NO SUPPORT"],
    "no-srq": [r"max_srq:\s+0\b"],
    "link-local": [r"GID\[\s*0\]:\s+fe80:\S*, RoCE v1\n\s+GID\[\s*1\]:\s+fe80:\S*, RoCE v2\n(?!\s*GID)"],
    "send-inv-fails": [r"MEM_MGT_EXTENSIONS"],
}
# What the suite's cases of a device's offer say.
OFFERS = {
    "mlx5": [r"UC: yes", r"UD: yes", r"send_ops_flags: yes", r"SEND_WITH_INV: advertised 1, status 10, "],
    "rxe": [r"UC: yes", r"send_ops_flags: yes"],
    "no-srq": [r"UC: yes"],
    "no-uc": [r"UC: no", r"UD: yes"],
    "no-send-ops": [r"send_ops_flags: Operation not supported"],
    "send-inv-fails": [r"SEND_WITH_INV: advertised 1, status 2, vendor_err 14\b"],
}
# What the suite has on all other devices, which may be like an adapter's: all but what needs long, or ends the device.
LEFT_OUT = "DeviceFatal.*:Limits.*:LargeMemory.*"
REFUSED = {
    "no-uc": ("ibv_uc_pingpong -d hnic0 -g 0", r"no UC queue pairs.*EOPNOTSUPP(.|\n)*Couldn't create QP|"
              r"Couldn't create QP(.|\n)*no UC queue pairs.*EOPNOTSUPP"),
    "no-srq": ("ibv_srq_pingpong -d hnic0 -g 0", r"no shared receive queues.*EOPNOTSUPP"),
    "no-send-ops": ("ibv_rc_pingpong -N -d hnic0 -g 0", r"send_ops_flags: the device has ibv_post_send alone.*EOPNOTSUPP"),
}
BAD = {
    "a personality that is none": ("connectx", r"--like: connectx: no such personality \(use one of gid-moves, .*rxe"),
    "a file that is not there": ("./none.toml", r"--like: \./none\.toml: can't be read: No such file"),
    "a file with an unknown feature": ("{file}", r"--like: \S*like\.toml:2:\d+: missing has \"xrc\" \(use words of uc, "),
}


def transfer(maker, devices, options):
    """A server and a client in one line; the output says how each ended."""
    port = maker.next_port()
    write = " ".join(quoted(may_leak(["ib_write_bw", "-F", "-n", "200", "-p", port]))) + f" {options}"
    return (f"hostnic run --device {devices[0]} -- {write} -d {devices[0]} & server=$!; "
            f"hostnic run --device {devices[1]} -- {write} -d {devices[1]} 127.0.0.1; client=$?; "
            "wait $server; echo both ended: $? $client")


def hosts_line(device):
    """What a script does on two machines with adapters; and the files that programs read."""
    files = f"/sys/class/infiniband/{device}/ports/1"
    write = " ".join(quoted(may_leak(["ib_write_bw", "-F", "-n", "100", "-d", device, "-x", "3"])))
    return (f"hostnic on 1 -- sh -c 'ls /sys/class/infiniband; cat {files}/gid_attrs/types/3 {files}/gid_attrs/ndevs/3 "
            f"{files}/gids/3 {files}/gid_attrs/types/2'; "
            f"hostnic on 1 -- {write} & server=$!; hostnic on 2 -- {write} host1; client=$?; "
            "wait $server; echo both ended: $? $client")


def of_stock_programs(maker, lab):
    for name, patterns in DEVINFO.items():
        yield Case(f"like {name}: ibv_devinfo", lab(name, "ibv_devinfo -v"), 30, True, has_all(*patterns))
    good = has_all(r"both ended: 0 0")
    yield Case("like mlx5: ib_write_bw -d mlx5_0 -x 3", lab("mlx5", transfer(maker, ("mlx5_0", "mlx5_1"), "-x 3")), 60, True,
               good)
    yield Case("like rxe: ib_write_bw -d rxe0 -x 1", lab("rxe", transfer(maker, ("rxe0", "rxe1"), "-x 1")), 60, False, good)
    yield Case("like link-local: ib_write_bw -x 1", lab("link-local", transfer(maker, ("hnic0", "hnic1"), "-x 1")), 60, False,
               good)
    yield Case("like no-send-ops: ib_write_bw goes on by ibv_post_send",
               lab("no-send-ops", transfer(maker, ("hnic0", "hnic1"), "")), 60, False, good)
    for name, (line, pattern) in REFUSED.items():
        yield Case(f"like {name}: {line.split()[0]} is refused", lab(name, f"{line}; test $? -ne 0"), 30, True,
                   output_has(pattern))
    # A GID that is elsewhere after the port was down; a program that is told of it.
    line = ("ibv_asyncwatch -d mlx5_0 > {watch} & watch=$!; sleep 1; ibv_devinfo -v -d mlx5_0; hostnic ctl stop; sleep 1; "
            "hostnic ctl start; sleep 1; echo later; ibv_devinfo -v -d mlx5_0; kill $watch; cat {watch}; rm {watch}")
    yield Case("like gid-moves: another index after a flap",
               lab("gid-moves", line.format(watch=f"/tmp/hostnic-like-{maker.next_port()}")), 60, True,
               has_all(r"GID\[\s*3\]:\s+::ffff:127\.77\.0\.1, RoCE v2\n(.|\n)*later\n(.|\n)*"
                       r"GID\[\s*5\]:\s+::ffff:127\.77\.0\.1, RoCE v2", r"EVENT_PORT_ERR", r"EVENT_PORT_ACTIVE", r"EVENT_GID_CHANGE"))
    pingpong = f"ibv_rc_pingpong -g 3 -p {maker.next_port()}"
    line = (f"hostnic ctl stop; hostnic ctl start; hostnic run --device mlx5_0 -- {pingpong} & server=$!; "
            f"hostnic run --device mlx5_1 -- {pingpong} 127.0.0.1; client=$?; wait $server; echo with 3: $? $client; "
            + transfer(maker, ("mlx5_0", "mlx5_1"), "-x 5"))
    yield Case("like gid-moves: the old index is empty, the new one works", lab("gid-moves", line), 60, False,
               has_all(r"with 3: [1-9]\d* [1-9]", r"both ended: 0 0"))


def of_the_suite(maker, lab):
    suite = maker.build / "tests/conformance/conformance-test"
    missing = None if suite.exists() else "the conformance suite is not built with sanitizers"
    for name, patterns in OFFERS.items():
        nics = [word for nic in (0, 1) for word in ("--nic", f"name=hnic{nic},like={name}")]
        yield Case(f"like {name}: the offer holds", [maker.build / "hostnic", "lab", "-q", *nics, "--", suite,
                   "--gtest_filter=Offer.*"], 60, True, has_all(r"\[  PASSED  \] \d+ tests", *patterns), skip=missing)
    for name in ("mlx5", "rxe"):
        nics = [word for nic in (0, 1) for word in ("--nic", f"name=hnic{nic},like={name}")]
        yield Case(f"like {name}: the conformance suite", [maker.build / "hostnic", "lab", "-q", *nics, "--", suite,
                   f"--gtest_filter=-{LEFT_OUT}"], 300, False, has_all(r"\[  PASSED  \] \d+ tests"), skip=missing)


def like_cases(maker, scratch):
    hostnic = maker.build / "hostnic"

    def lab(name, line):
        return [hostnic, "lab", "-q", "--like", name, "--", "sh", "-c", line]

    yield from of_stock_programs(maker, lab)
    yield from of_the_suite(maker, lab)
    file = scratch / "like.toml"
    file.write_text("[personality]\nmissing = 'srq xrc'\n")
    for name, (value, pattern) in BAD.items():
        words = [hostnic, "lab", "--like", value.format(file=file), "--", "true"]
        yield Case(f"refuses {name}", ["sh", "-c", f"{shell_quote(words)}; test $? -eq 2"], 30, True, output_has(pattern))
    own = scratch / "own.toml"
    own.write_text("[personality]\ndevice_name = 'acme'\nvendor_id = 0x02c9\nmax_sge = 4\n")
    yield Case("like a file of one's own", lab(str(own), "ibv_devinfo -v"), 30, True,
               has_all(r"hca_id:\s+acme0", r"vendor_id:\s+0x02c9\b", r"max_sge:\s+4\b"))
    yield Case("like: names and vendors by keys of the NIC",
               [hostnic, "lab", "-q", "--nic", "like=mlx5,name=mlx5_bond_0,vendor_id=0x2c9,vendor_part_id=4123", "--",
                "ibv_devinfo", "-v"], 30, True,
               has_all(r"hca_id:\s+mlx5_bond_0", r"vendor_id:\s+0x02c9\b", r"vendor_part_id:\s+4123\b"))
    yield Case("hostnic like lists and shows", ["sh", "-c", f"{shell_quote([hostnic, 'like'])} && "
               f"{shell_quote([hostnic, 'like', 'mlx5'])}"], 30, True,
               has_all(*(rf"^{name} " if name == "gid-moves" else rf"\n{name} " for name in [
                   "gid-moves", "link-local", "mlx5", "no-send-ops", "no-srq", "no-uc", "rxe", "send-inv-fails"]),
                   r'device_name = "mlx5_"', r"# hostnic's own limit holds: max_sge = 30 \(16 here\)"))


def like_hosts_cases(maker):
    hostnic = maker.build / "hostnic"
    for port in ("udp", "wire"):
        for words, device in ((["--like", "mlx5"], "mlx5_0"), (["--nic", "name=roce0,gids=mlx5"], "roce0")):
            yield Case(f"hosts on {port}: {' '.join(words)}",
                       [hostnic, "lab", "-q", "--hosts", "2", "--port", port, *words, "--", "sh", "-c", hosts_line(device)],
                       60, port == "udp", has_all(
                           rf"^{device}\nRoCE v2\neth0\n0000:0000:0000:0000:0000:ffff:0a4d:0001\nIB/RoCE v1\n",
                           r"both ended: 0 0"))
