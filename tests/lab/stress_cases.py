# SPDX-License-Identifier: BSD-3-Clause
"""hostnic-stress: many threads, queue pairs and objects at once, and nothing of them left behind."""

import re

from harness import Case, no_trouble

STRESS = "tests/apps/hostnic-stress"

# hostnicd takes a moment to see that a program has gone.
NOTHING_LEFT = ("for i in $(seq 120); do hostnic ctl 'show client' | grep -q 'no clients' && break; "
                "sleep 0.5; done; hostnic ctl 'show client' && hostnic ctl 'show qp' && hostnic ctl 'show nic'")

# name, hostnic lab's arguments, the program's
SHORT = [
    ("16 threads, 200 QPs, loss 0.5%", ["--loss", "0.5%"],
     ["--threads", "16", "--qps", "200", "--seconds", "12"]),
    ("8 threads, 24 QPs, one context", [], ["--threads", "8", "--qps", "24", "--contexts", "1", "--seconds", "5"]),
]


def stress_is_ok(output):
    if "hostnic-stress: ok:" not in output:
        return "hostnic-stress printed no summary"
    if "no clients" not in output or len(re.findall(r"clients 0 qps 0", output)) != 2:
        return "something is left in hostnicd"
    return no_trouble(output.replace("error completions expected", ""))


def stress_cases(maker):
    for name, lab_arguments, arguments in SHORT:
        program = " ".join(map(str, [maker.apps / STRESS, "--seed", maker.seed, *arguments]))
        yield Case(f"hostnic-stress {name}",
                   maker.lab(lab_arguments, ["sh", "-c", f"{program} || exit 1; {NOTHING_LEFT}"]),
                   180, True, stress_is_ok)
