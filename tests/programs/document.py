# SPDX-License-Identifier: BSD-3-Clause
"""Writes docs/programs.md from the table and from a run of all of it."""

from table import NETWORKS, ROWS

HEAD = """# Programs

This page lists how unmodified programs of Debian 12 do on hostnic, each tried between two NICs of a lab, by a user
without privileges; `loss 1%`: every NIC loses one in a hundred packets that it receives. `ok` means: the program ended
well and said what it should, and the NICs' counters say that its bytes went through them (none by TCP or shared
memory). Written by `python3 tests/programs/run_programs.py --write-docs` on {date}, from
`tests/programs/rows_*.py`, which have the command lines. `./run test --only programs` tries them all again.

A program runs as in these rows under `hostnic run` or in a lab, and needs no option on hostnic's account.

## Lines for known programs

Under `hostnic lab -- ...`, `hostnic on HOST -- ...` or `hostnic run -- ...`; `hnic0` is the device's name there, its
GID index 0. Rows below say how those that were tried did.

| program | lines | tried |
|---|---|---|
| NCCL | `NCCL_IB_HCA=hnic0 NCCL_IB_GID_INDEX=0 NCCL_DEBUG=INFO`; a GPU is needed all the same; with `--like mlx5`: `NCCL_IB_HCA=mlx5_0 NCCL_IB_GID_INDEX=3` | no |
| RCCL | as NCCL: it has the same variables | no |
| UCX | `UCX_TLS=rc,self UCX_NET_DEVICES=hnic0:1` (`ud` for UD) | yes |
| Open MPI | `mpirun --mca pml ucx --mca osc ucx -x UCX_TLS=rc,self -x UCX_NET_DEVICES=hnic0:1`; in hosts of a lab `--mca plm_rsh_agent 'hostnic on'` ([lab.md](lab.md#mpirun)) | yes |
| MPICH | `UCX_TLS=rc,self UCX_NET_DEVICES=all mpiexec.mpich` | yes |
| libfabric | `fi_pingpong -p verbs -e msg` (`rdm`, `dgram`); programs: `FI_PROVIDER=verbs` | yes |
| Valkey | `valkey-server --loadmodule valkey-rdma.so bind=ADDRESS port=6380` | a snapshot of October 2024 |
| Ceph | `ms_type = async+rdma`, `ms_async_rdma_device_name = hnic0`, `ms_async_rdma_gid_idx = 0` | no |
| SPDK | `nvmf_tgt`, then its RPC `nvmf_create_transport -t RDMA` | no |"""
FOOT = """
Where all ranks connect at once, UCX 1.13 aborts now and then with "Assertion `ep->dest_ep_id ==
ctl->conn_rep.src_ep_id' failed" (openucx/ucx#6040, open, reported there for adapters): seen in 2 of 50 starts of Open
MPI with four ranks on two processors; or, on a busy machine, with "acked_psn=3 must be smaller than current_psn=2"
(openucx/ucx#8743, mended in 1.20). The rows of MPI are then run again.
Open MPI's MPI_Finalize may take a minute where ranks share processors (30 to 100 s seen): it flushes and destroys
one-sided endpoints without a fence, and a rank that comes late asks queue pairs of its peers that are gone by then.

Tried on 2026-11-28, at a load of 40 to 60 on two processors:

- UCX 1.13.1's own tests of the transports in one host of a lab, `hostnic lab --hosts 2 -- hostnic on 1 -- gtest
  --gtest_filter=...` with `UCX_HANDLE_ERRORS=none`, built without those of its other layers: `*ud_verbs*` 231 of 231,
  `*rdmacm*` 59 of 60, `*rc_verbs*` 152 of the 153 that began within 400 s, of 232, no failure (tests that skip
  themselves count as passed). The one of rdmacm, `cm_open_listen_close/2`, compares with what it sets only after the
  call that another thread may answer before: with its siblings it passed 90 of 90 times afterwards.
  Once more in the evening, in shards, at a load of 12 to 26: `*rdmacm*` 60 of 60. Of `*rc_verbs*` and `*ud_verbs*` six
  tests failed. Four took a warning for a failure, GID_CHANGE: a host's IPv6 address became good a second after the lab
  had begun, and since then is good from the beginning. `address_pack_path_mtu` and `non_equal_mtu` ask for path MTUs
  of 2048 and 4096 where the port has 1024, and need `--mtu 9000`. `uct_p2p_rma_test_xfer.fence` and
  `uct_p2p_am_alignment.align_zcopy...` abort: they unmap buffers that are registered still and in use, by a WRITE under
  way or UCX's own repetition. An adapter holds the pages. Here they are reached through the mem fd, since UCX has
  threads, and could not be reached any more. Since such pages are kept ([memory.md](memory.md#three-ways)) all 32
  tests of these two groups passed 5 of 5 times at a load of 7. All others passed, 306 of rc and 302 of ud.
- fabtests 1.17 (Debian's libfabric 1.17.0) between two hosts of a lab, `runfabtests.sh -t SET -f EXCLUDE PROVIDER
  10.77.0.1 10.77.0.2` with the exclude files that come with it, each test within 120 s: `verbs` quick 26 of 26 (61 are
  excluded or don't run), standard 7 of 7 (31); `verbs;ofi_rxm` quick 40 of 42 (45), standard 20 of 20 (18);
  `verbs;ofi_rxd` quick 40 of 40 (47). The two of rxm hung at their end, the peer
  gone and a message missing: it seems to have lain in the completion queue when the queue pair was destroyed.
  `ibv_poll_cq` looks there again since then: 42 of 42, and `fi_rma_bw -e rdm -o write -I 5` 16 of 16 times (before, it
  hung in 1 of 9). Of `ofi_rxd`'s standard set 8 of 10 met the limit of time while they went on; within 300 s, at a
  load of 20 to 40, 21 of 21 pass (17). Once more in the evening: `verbs` quick 26 of 26, `verbs;ofi_rxm` quick 42 of
  42, `verbs;ofi_rxd` quick 40 of 40; of `verbs` standard two (`fi_msg_pingpong`) met a limit of 300 s at a load of 26.
- rdma-core 64.0's Python tests (with its own libibverbs, in a plain lab and in a host of one):
  131 of 227 pass, 96 skip, none fails. `rdma link show -j` is asked for the interface by netlink: a program of that
  name answered instead, before hostnic did ([verbs.md](verbs.md#rdma-netlink)). Vendors' modules were left out.
- mpi4py 3.1.4's tests with two ranks of Open MPI 4.1.4, all but spawn and dynproc: 1,358 run, as well by UCX over rc as
  by TCP. By TCP 76 skip, over rc 116, of which two classes (`TestWinCreateDynamic...`) were left out: `MPI_Win_free`
  of a dynamic window crashes in osc/ucx, over UCX's TCP without hostnic, too. `test_rma`, with its
  `MPI_Get_accumulate(MPI_REPLACE)`, five more times over rc: 50 of 50 each.
- 1,000 connections whose client SENDs and disconnects at once (rdma_cm), between two hosts of a lab: all 1,000 last
  messages arrive by `--port af_packet`, `udp` and `wire`. By `ibv_modify_qp` to ERR and RESET and by `ibv_destroy_qp`
  RC, UC and UD 1,000 of 1,000 each, natively, with `transport = "roce"` and on port `udp`.
- READ, then WRITE, WRITE_IMM, SEND, SEND_IMM or FETCH_ADD of the same bytes without a fence: 10,080 of 10,080 each have
  the old bytes, with both transports, at 0 and at 1 % loss.

The rows of registered memory, 900 rounds of each, as an ordinary user at a load of 20 to 40 on two processors: Python
183 s (jemalloc 179 s, tcmalloc 198 s), Go 240 s, Java 235 s, redis that saves in the background 283 s, postgres 507 s:
no byte was wrong, neither in the programs nor in their children, the databases neither (2026-11-29; `MEMORY_ROUNDS=900
python3 tests/programs/run_programs.py --filter 'redis-server, BGSAVE|postgres|cgo|JNI|multiprocessing'`). Before that,
for ten minutes each at once, as root: 844 rounds of Go, 709 of
Java, 501, 490 and 499 of Python (jemalloc, tcmalloc), and `hostnic-stress` with either allocator beside them,
at a load of 70 on two processors: no byte was wrong, nothing failed (2026-11-28). As an ordinary user at the same
load, with a fifth of the rounds: no byte was wrong; of the two `hostnic-stress` one ended with a request that was
flushed where it expected none. Valkey's RDMA module (a snapshot of October 2024), its `rdma-test` with BGSAVE while
connections are open, and each dump loaded by a second server: contents and digests are the same. At that load its
server crashed twice by itself, in the keepalive timer of a connection whose accept had failed.

Not tried: programs of other distributions and newer ones (UCX 1.18, newer rdma-core, perftest's master), NCCL, ceph and
PyTorch.
"""


def cell(row, network, kept):
    if network != "clean" and not row.loses:
        return "-"
    result = kept.get(f"{row.name} [{network}]")
    if result is None or result["skip"]:
        return "not run"
    if "moved" not in result:
        return "**fails**"
    if row.fails:
        return "no"
    lost = result["moved"].get("impair_rx_dropped", 0)
    return f"ok ({lost} lost)" if network != "clean" and lost else "ok"


def line(cells):
    return "| " + " | ".join(text.replace("|", "\\|") for text in cells) + " |"


def write(path, kept, version):
    text = [HEAD.format(date=max((result["date"] for result in kept.values()), default="no day"))]
    group = None
    for row in ROWS:
        if row.group != group:
            group = row.group
            text += ["", f"## {group}", "", line(["program", "package", *NETWORKS, "remarks"]),
                     "|" + "---|" * (3 + len(NETWORKS))]
        against = kept.get(f"{row.name} [clean]", {}).get("skip") or ""
        text.append(line([row.name, f"{row.packages[0]} {version(row.packages[0]) or ''}".rstrip(),
                          *(cell(row, network, kept) for network in NETWORKS), row.fails or against or row.note]))
    path.write_text("\n".join(text) + "\n" + FOOT, encoding="utf-8")
