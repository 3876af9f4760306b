# SPDX-License-Identifier: BSD-3-Clause
"""`hostnic fault` in front of rdma_rxe's own device: the same rules make the same calls fail, with the same errors, as in
front of hostnic's. hostnic-faulted runs in a lab and in the guest, and says the same at both."""

import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from fault_cases import has_all  # noqa: E402
from ground import HOSTNIC_ADDRESS  # noqa: E402
from harness import Case  # noqa: E402

FAULTED = Path("tests/apps/hostnic-faulted")
CALLS = Path("libhostnic-calls.so")
# Rules, and the mode of hostnic-faulted that meets them.
RULES = [
    ("fault create_cq nth 3 errno ENOMEM", "calls"),
    ("create_cq every 2 errno EAGAIN", "calls"),
    ("reg_mr over 1M errno EFAULT", "calls"),
    ("query_gid errno EIO", "calls"),
    ("alloc_pd errno EPERM", "calls"),
    ("post_recv errno ENOSPC", "calls"),
    ("modify_qp to INIT errno EINVAL", "completions"),
    ("modify_qp to INIT delay 400ms", "calls"),
    ("modify_qp to RTR errno ETIMEDOUT", "completions"),
    ("post_send nth 4 errno ENOMEM", "completions"),
    ("wc nth 4 status RETRY_EXC_ERR vendor 0x81", "completions"),
    ("wc nth 4 status RETRY_EXC_ERR vendor 0x81", "completions ex"),
    ("wc opcode READ status GENERAL_ERR; wc nth 9 status REM_ACCESS_ERR", "completions"),
    ("wc nth 2 delay 50ms; post nth 5 delay 20ms", "completions"),
    ("event PORT_ERR after 600ms for 600ms; event QP_FATAL qp #2 after 100ms", "events 2"),
    ("event DEVICE_FATAL after 300ms", "events 1"),
    ("create_qp 40% errno ENOMEM", "calls"),
]

# What the program has said and how it ended, without the lines of stderr about each match.
SAID = "{ %s; echo status $?; } 2> %s"


def words(command):
    return " ".join(shlex.quote(str(word)) for word in command)


def of_connections(at, port, limit_s):
    """rdma_cm of the guest's kernel: its client is told that hostnic's server has refused it."""
    rping = f"rping -c -a {HOSTNIC_ADDRESS} -p {port} -C 1"
    client = f"LD_LIBRARY_PATH=/host /host/hostnic fault --rule 'cm ESTABLISHED as REJECTED reason 28' -- {rping}"
    line = (f"{words(at.on_hostnic('rping', '-s', '-a', HOSTNIC_ADDRESS, '-p', port, '-C', 1))} & s=$!; sleep 1; "
            f"{words(at.in_guest(client, limit_s))}; echo status $?; wait $s; true")
    return Case("faults: a connection that is refused [rxe asks]", ["sh", "-c", line], limit_s, False,
                has_all("event: match 1 of: fault cm ESTABLISHED as REJECTED reason 28",
                        "cma event RDMA_CM_EVENT_REJECTED, error 28", "status [1-9]"))


def fault_cases(at, port, limit_s=60):
    yield of_connections(at, port, limit_s)
    for rule, mode in RULES:
        quoted = shlex.quote(rule)
        here = f"{at.build / 'hostnic'} lab -q --seed 5 --fault {quoted} -- {at.build / FAULTED} {mode}"
        there = ("LD_LIBRARY_PATH=/host /host/hostnic fault --device rxe0 --seed 5 "
                 f"--rule {quoted} -- /host/hostnic-faulted {mode}")
        in_guest = words(at.in_guest(SAID % (there, "/host/faulted-stderr"), limit_s))
        scratch = at.directory
        line = (f"{SAID % (here, scratch / 'here-stderr')} > {scratch}/here; {in_guest} > {scratch}/there; "
                f"cat {scratch}/here; echo; grep -c . {scratch}/here > /dev/null || exit 1; "
                f"diff {scratch}/here {scratch}/there || {{ cat {scratch}/here-stderr {at.share}/faulted-stderr; exit 1; }}")
        yield Case(f"faults: {rule}, {mode} [rxe as hostnic]", ["sh", "-c", line], limit_s)


def bring_faults(at):
    """What the guest needs for them."""
    for program in ("hostnic", CALLS, FAULTED):
        at.bring(at.build / program)
