# SPDX-License-Identifier: BSD-3-Clause
"""NICs that find out what their peers speak (docs/roce.md, "auto"), each with a peer of every kind:
what is chosen, as `show qp` says while connections last and `show peers` afterwards, and that data
arrive."""

import re

from harness import Case, no_trouble

# Of two NICs, hnic0 and hnic1: what they speak and lose, whether that is the standard's RC in the end, what hnic0 knows
# of hnic1 (None: it asks nobody), in the quick run.
SILENT = "transport=roce,impair_rx=drop 100% kind send"
PEERS = [
    ("auto, auto", "transport=auto", "transport=auto", False, "hostnic version 3 .* wants auto", True),
    ("auto, hostnic", "transport=auto", "transport=hostnic", False, "hostnic version 3 .* wants hostnic", False),
    ("hostnic, auto", "transport=hostnic", "transport=auto", False, None, False),
    ("auto, roce", "transport=auto", "transport=roce", True, "hostnic version 3 .* wants roce", True),
    ("roce, auto", "transport=roce", "transport=auto", True, None, False),
    ("auto by prefix, auto", "auto_peers=127.77.0.2", "transport=auto", False, "hostnic version 3 .* wants auto", False),
    ("auto, another policy", "transport=auto", "transport=auto,policy=go-back-n", True, "policy go-back-n", False),
    ("auto, nobody who answers", "transport=auto", SILENT, True, "does not answer", True),
]

# Says what queue pairs speak while there are any, and then what is known of peers.
LOOKS = """
"$@" & work=$!
while kill -0 $work 2> /dev/null; do
  hostnic ctl 'show qp' | grep -o 'qp [^ ]* [^ ]* RTS' | sed 's/qp [^ ]*/chosen/' | sort -u
  sleep 0.1
done > "$0.chosen"
wait $work || exit 1
sort -u "$0.chosen"
rm "$0.chosen"
hostnic ctl 'show peers'
"""


def chosen(standard, known, check):
    """A check: connections spoke that and nothing else, peers are known as that, and what `check` says."""

    def both(output):
        said = set(re.findall(r"^chosen (\S+) RTS$", output, re.MULTILINE))
        expected = {"RC/roce" if standard else "RC"}
        if said != expected:
            return f"queue pairs spoke {said or 'nothing that was seen'}, expected {expected}"
        if known is not None and not re.search(f"^hnic0 from 127.77.0.1 peer 127.77.0.2: .*{known}", output, re.MULTILINE):
            return f"show peers does not say {known!r} of hnic1"
        return check(output)

    return both


def auto_cases(maker, scratch, verify_is_ok, rdma_cm_is_ok):
    def case(name, left, right, command, check, quick):
        file = scratch / f"auto_{len(cases)}"
        cases.append(Case(name, maker.lab(["--nic", left, "--nic", right, *network], ["sh", "-c", LOOKS, file, *command]),
                          180, quick, check))

    cases = []
    for network in ([], ["--loss", "1%"]):
        where = f"[two NICs, {'loss 1%' if network else 'clean'}]"
        for name, left, right, standard, known, quick in PEERS:
            if "kind send" in right:  # No SENDs: these are lost.
                if network:
                    continue
                command, check = maker.write_bw(["-n", "20000"]), no_trouble
            else:
                command, check = maker.verify_command(["--qps", "4"], "two NICs"), verify_is_ok
            case(f"hostnic-verify {name} {where}" if check is verify_is_ok else f"ib_write_bw {name} {where}", left, right,
                 command, chosen(standard, known, check), quick and not network)
        for name, right, standard in (("auto, auto", "transport=auto", False), ("auto, roce", "transport=roce", True)):
            case(f"rping {name} {where}", "transport=auto", right, maker.rping(), chosen(standard, None, rdma_cm_is_ok),
                 standard and not network)
    return cases
