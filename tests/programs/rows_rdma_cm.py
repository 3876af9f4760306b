# SPDX-License-Identifier: BSD-3-Clause
"""rdmacm-utils, and other programs that test rdma_cm. The client may start first: a lab holds its request until the
server listens."""

from row import CLIENT, LOST_ENDS_IT, SERVER, Row, through

RDMA_CM = []
BOTH_WELL = r"return status 0(.|\n)*return status 0"
# At least a request and a reply.
CONNECTED = {"management_sent": 2}


def add(name, server, client, expect, least=0, **more):
    RDMA_CM.append(Row("rdmacm-utils", name, ["rdmacm-utils"], server=server, client=client, expect=expect,
                       moves={**CONNECTED, "tx_bytes": 1000 + least}, **more))


add("rping", f"rping -s -a {SERVER} -C 100 -V", f"rping -c -a {SERVER} -C 100 -v -V", (r"rdma-ping-99: ",), ci=True,
    note="data checked")
add("rping -S 65000", "rping -s -C 20 -V -S 65000", f"rping -c -a {SERVER} -C 20 -V -v -S 65000", (r"rdma-ping-19: ",),
    least=2 * 20 * 65000, note="data checked; the server listens on 0.0.0.0")
add("ucmatose", f"ucmatose -b {SERVER} -c 10 -C 20", f"ucmatose -s {SERVER} -c 10 -C 20", (BOTH_WELL,), ci=True)
add("ucmatose -m", f"ucmatose -b {SERVER} -m", f"ucmatose -s {SERVER} -m", (r"migrating", BOTH_WELL),
    note="ids move between event channels")
add("udaddy", f"udaddy -b {SERVER}", f"udaddy -s {SERVER}", (BOTH_WELL,), loses=False, ci=True, note=LOST_ENDS_IT)
RDMA_CM.append(Row(
    "rdmacm-utils", "mckey", ["rdmacm-utils"], server=f"mckey -m 239.1.2.3 -b {SERVER}",
    client=f"sleep 2; exec mckey -m 239.1.2.3 -b {CLIENT} -s", expect=(BOTH_WELL,), moves=through(1000), loses=False,
    note="multicast; " + LOST_ENDS_IT))
add("cmtime", f"cmtime -b {SERVER} -c 50", f"cmtime -s {SERVER} -c 50", (r"connect +:",), limit_s=120, daemon=True)
add("rdma_server, rdma_client", "rdma_server", f"rdma_client -s {SERVER}", 
    (r"rdma_server: end 0", r"rdma_client: end 0"),
    ci=True)
add("rdma_xserver, rdma_xclient", "timeout 10 rdma_xserver -c x", f"timeout 10 rdma_xclient -c x -s {SERVER}", (),
    loses=False, strict=False, fails="no XRC")
add("rstream -T v", "rstream -T v", f"rstream -s {SERVER} -T v", (r"1m_bw",), least=1_000_000, ci=True, limit_s=120,
    note="data checked")
add("riostream -T v", "riostream -T v -S 65536 -C 100", f"riostream -s {SERVER} -T v -S 65536 -C 100", (r"64k",), least=65536,
    note="data checked")
add("rcopy", "rcopy",
    f"head -c 5000000 /dev/urandom >sent; sleep 1; rcopy sent {SERVER}:received; cmp sent received",
    (r"bytes",), least=5_000_000, daemon=True, note="the file is compared")
add("udpong", "timeout 5 udpong", f"timeout 5 udpong -s {SERVER}", (), loses=False, strict=False,
    fails="datagram rsockets make address handles of LIDs alone: they are for InfiniBand, and fail on RoCE adapters too")
