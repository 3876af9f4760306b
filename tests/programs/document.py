# SPDX-License-Identifier: BSD-3-Clause
"""Writes docs/programs.md from the table and from a run of all of it."""

from table import NETWORKS, ROWS

HEAD = """# Programs

What unmodified programs of Debian 12 do on hostnic, each tried between two NICs of a lab, by a user without
privileges; `loss 1%`: every NIC loses one in a hundred packets that it receives. `ok` means: the program ended well and
said what it should, and the NICs' counters say that its bytes went through them (none by TCP or shared memory).
Written by `python3 tests/programs/run_programs.py --write-docs` on {date}, from `tests/programs/rows_*.py`, which
have the command lines.
`./run test --only programs` tries them all again.

A program runs as in these rows under `hostnic run` or in a lab, and needs no option on hostnic's account."""
FOOT = """
Where all ranks connect at once, UCX 1.13 aborts now and then with "Assertion `ep->dest_ep_id ==
ctl->conn_rep.src_ep_id' failed" (openucx/ucx#6040, open, reported there for adapters): seen in 2 of 50 starts of Open
MPI with four ranks on two processors; or, on a busy machine, with "acked_psn=3 must be smaller than current_psn=2"
(openucx/ucx#8743, mended in 1.20). The rows of MPI are then run again.
Open MPI's MPI_Finalize may take a minute where ranks share processors (30 to 100 s seen): it flushes and destroys
one-sided endpoints without a fence, and a rank that comes late asks queue pairs of its peers that are gone by then.

UCX 1.13.1's own tests in one host of a lab, `hostnic lab --hosts 2 -- hostnic on 1 -- gtest
--gtest_filter='*rc_verbs*:*ud_verbs*:*rdmacm*'` with `UCX_HANDLE_ERRORS=none`: of 591 the first 266 were tried on
2026-11-27, at a load of 30, and none failed; more than 120 of them skip themselves, and rdmacm's were not
reached. fabtests 1.17 between two hosts of a lab, `runfabtests.sh -t quick PROVIDER 10.77.0.1 10.77.0.2`, do run;
at that load some end by their limit of time, or with flushed requests where one side has gone.
`fi_msg_inject -N` by itself ends well, 20 of 20 times, ten of them beside four busy loops.

The rows of registered memory, for ten minutes each at once, as root: 844 rounds of Go, 709 of
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
