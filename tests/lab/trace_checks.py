#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares what `hostnic trace` writes with calls that are known:

  trace_checks.py ours BUILD APPS       hostnic-traced of APPS in a lab, as lines and as a summary
  trace_checks.py adapter BUILD APPS    the same on a libibverbs of somebody else, without hostnicd
  trace_checks.py cm BUILD PORT         rping in a lab
"""

import collections
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

THREADS, REGISTRATIONS, POLLS, CHILD_POLLS = 4, 200, 3000, 700  # as in tests/apps/traced/main.cc
LINE = re.compile(r"\d\d:\d\d:\d\d\.\d{6} \[(\d+)(?:/(\d+))?\] ( *)([a-z_]\w+)(\(.*?\))(?: = (.*?))?(?: x (\d+))?"
                  r" <(?:unfinished, )?[\d.]+ [num]?s>")


def run(*command, **more):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, f"{command}: {done.returncode}: {done.stdout}{done.stderr}"
    return done


def calls_in(text):
    """Each line as (pid, tid, depth, name, arguments, result, count); all must be whole."""
    for line in text.splitlines():
        match = LINE.fullmatch(line)
        assert match, f"torn, or of another form: {line!r}"
        pid, tid, indent, name, arguments, result, count = match.groups()
        yield int(pid), int(tid or pid), len(indent) // 2, name, arguments, result, int(count or 1)


def check_known(text):
    calls = list(calls_in(text))
    counts = collections.Counter()
    for call in calls:
        counts[call[3]] += call[6]
    expected = {"ibv_reg_mr": THREADS * REGISTRATIONS, "ibv_dereg_mr": THREADS * REGISTRATIONS,
                "ibv_poll_cq": THREADS * POLLS + CHILD_POLLS, "ibv_create_cq": THREADS + 2, "ibv_destroy_cq": THREADS,
                "ibv_get_device_list": 2, "ibv_free_device_list": 2, "ibv_open_device": 2, "ibv_close_device": 1,
                "ibv_alloc_pd": 1, "ibv_dealloc_pd": 1}
    assert counts == expected, f"{dict(counts)}, not {expected}"
    # Polls that found nothing are a line, or some if they took seconds.
    polls = [call for call in calls if call[3] == "ibv_poll_cq"]
    assert len(polls) < (THREADS + 1) * 30 and all(call[5] == "0" for call in polls), polls[:5]
    refused = [call for call in calls if "-1 entries" in call[4]]
    assert [call[5] for call in refused] == ["NULL EINVAL (Invalid argument)"], refused
    registered = next(call for call in calls if call[3] == "ibv_reg_mr")
    assert re.fullmatch(r"\(pd 0x\w+, 0x\w+, 4096 bytes, LOCAL_WRITE\)", registered[4]), registered
    assert re.fullmatch(r"mr 0x\w+ lkey 0x\w+ rkey 0x\w+", registered[5]), registered
    assert len({call[0] for call in calls}) == 2, "the program and its child"
    assert len({call[1] for call in calls}) == THREADS + 2, "threads"


def check_summary(text):
    rows = {line.split()[-1]: line.split() for line in text.splitlines()[-20:]}
    name = "ibv_reg_mr"
    assert rows[name][4] == str(THREADS * REGISTRATIONS), rows[name]
    assert rows["ibv_create_cq"][4:6] == [str(THREADS + 2), "1"], rows["ibv_create_cq"]
    assert rows["ibv_poll_cq"][4] == str(THREADS * POLLS + CHILD_POLLS), rows["ibv_poll_cq"]


def check_both(prefix, build, apps, environment):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace"
        program = apps / "hostnic-traced"
        done = run(*prefix, build / "hostnic", "trace", "-o", path, "--", program, env=environment)
        assert "hostnic-traced: ok" in done.stdout, done
        check_known(path.read_text())
        run(*prefix, build / "hostnic", "trace", "-o", path, "--summary", "--", program, env=environment)
        check_summary(path.read_text())
    print("calls are as they were made")


def check_ours(build, apps):
    check_both([build / "hostnic", "lab", "-q", "--"], build, apps, dict(os.environ))


def check_adapter(build, apps):
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "libibverbs.so.1").symlink_to(apps / "libfake-adapter.so")
        check_both([], build, apps, {**os.environ, "LD_LIBRARY_PATH": directory})


def check_cm(build, port):
    script = (f"{build}/hostnic trace -o $0/server -- rping -s -a 127.77.0.1 -p {port} -C 2 & s=$!; "
              "for i in $(seq 100); do grep -q rdma_listen $0/server && break; sleep 0.1; done; "
              f"{build}/hostnic trace -o $0/client -- rping -c -a 127.77.0.1 -p {port} -C 2 && wait $s")
    with tempfile.TemporaryDirectory() as directory:
        run(build / "hostnic", "lab", "-q", "--", "bash", "-c", script, directory)
        server, client = (list(calls_in((Path(directory) / name).read_text())) for name in ("server", "client"))
    events = [call[5].split()[1] for call in client if call[3] == "rdma_get_cm_event" and call[5]]
    assert events[:3] == ["ADDR_RESOLVED", "ROUTE_RESOLVED", "ESTABLISHED"], events
    assert any(call[3] == "rdma_bind_addr" and f", 127.77.0.1:{port})" in call[4] for call in server), server
    # librdmacm's own verbs stand inside of its call.
    inside = [call for call in server + client if call[2] == 1]
    assert any(call[3] == "ibv_modify_qp" for call in inside), inside
    # Who waits for an event when the program ends has a line, too.
    assert any(call[5] is None and call[3] == "rdma_get_cm_event" for call in server + client)
    print("rdma_cm is traced")


if __name__ == "__main__":
    if sys.argv[1] == "cm":
        check_cm(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        {"ours": check_ours, "adapter": check_adapter}[sys.argv[1]](
            *(Path(word).resolve() for word in sys.argv[2:]))
