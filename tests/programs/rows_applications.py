# SPDX-License-Identifier: BSD-3-Clause
"""Applications with RDMA as one of their ways."""

from row import SERVER, Row, through

APPLICATIONS = []

MIB = 1 << 20
for verb in ("write", "read"):
    common = "--ioengine=rdma --port={port} --bs=64k --size=8m --iodepth=8"
    APPLICATIONS.append(Row(
        "Storage", f"fio, ioengine=rdma, verb={verb}", ["fio"],
        server=f"fio --name=server {common} --rw=read",
        client=f"fio --name=client {common} --verb={verb} --rw=write --hostname={SERVER}",
        expect=(r"WRITE: bw=.*io=8192KiB",), moves=through(8 * MIB, management_sent=3), listens=False,
        ci=verb == "write", note="fio's rdma engine is a pipe: it has no verify. With `verb=send` it waits for no receive and wants no "
        "RNR retries, so that a slow server ends it with status 13, as on an adapter"))
APPLICATIONS.append(Row(
    "Storage", "tgtd, iscsi-readcapacity16, iSER", ["tgt", "libiscsi-bin"],
    client="exec sh $PROGRAMS/iser.sh {port} capacity", expect=(r"Total size:8388608",),
    moves=through(1000, management_sent=3), strict=False, ci=True, note="`iscsi-ls` takes no `iser://`"))
APPLICATIONS.append(Row(
    "Storage", "tgtd, qemu-img, iSER", ["tgt", "qemu-utils", "qemu-block-extra"],
    client="exec sh $PROGRAMS/iser.sh {port} disk", expect=(r"the disk is what it should be",),
    moves=through(2 * 8 * MIB, management_sent=6), strict=False, limit_s=120,
    note="read, written and compared. libiscsi's iSER refuses requests of more than 512 KiB: `max-transfer=262144`"))
APPLICATIONS.append(Row(
    "Virtual machines", "qemu-system-x86_64, migrate rdma:", ["qemu-system-x86"],
    client="exec python3 $PROGRAMS/qemu_migration.py {port}", expect=(r"the guest's memory has arrived",),
    moves=through(24 * MIB, management_sent=3), strict=False, limit_s=180,
    note="TCG; the guest's memory is compared"))

# The provider's control connection goes by TCP to 127.0.0.1, messages by the NICs.
for kind, what, least in (("msg", "msg", 2 * 10 * MIB), ("rdm", "rdm (ofi_rxm)", 2 * 10 * MIB), ("dgram", "dgram", 2 * 10 * 5440)):
    APPLICATIONS.append(Row(
        "libfabric", f"fi_pingpong -p verbs -e {kind}", ["libfabric-bin"],
        server=f"fi_pingpong -p verbs -e {kind} -c -B {{port}}",
        client=f"fi_pingpong -p verbs -e {kind} -c -P {{port}} 127.0.0.1", expect=(r"\n4k +10 ",), moves=through(least),
        loses=kind != "dgram", ci=True, limit_s=120, note=f"{what}, data checked"))

RSOCKETS = "LD_PRELOAD=/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so:$LD_PRELOAD exec "
APPLICATIONS.append(Row(
    "librspreload", "redis-server, redis-benchmark", ["librdmacm1", "redis-server", "redis-tools"],
    server=f"{RSOCKETS} redis-server --port {{port}} --bind {SERVER} --save ''",
    client=f"{RSOCKETS} timeout 5 redis-benchmark -h {SERVER} -p {{port}} -n 10", listens=False, daemon=True,
    loses=False, strict=False, fails="Debian's redis waits with epoll, which Debian's librspreload does not take over"))
APPLICATIONS.append(Row(
    "librspreload", "iperf3", ["librdmacm1", "iperf3"],
    server=f"{RSOCKETS} timeout 20 iperf3 -s -1 -p {{port}} -B {SERVER}",
    client=f"{RSOCKETS} timeout 10 iperf3 -c {SERVER} -p {{port}} -n 1M -l 16K", listens=False, daemon=True,
    loses=False, strict=False, fails="it connects, then asks its socket for TCP's state (`getsockopt`), which rsockets refuse"))
