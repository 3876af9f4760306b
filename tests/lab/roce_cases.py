# SPDX-License-Identifier: BSD-3-Clause
"""perftest's main rows and hostnic-verify between NICs that speak the standard's transport (docs/roce.md)."""

from congestion_cases import ROCE
from harness import Case, error_checks_are_ok, pair, perftest_rows, verify_is_ok

# Program, options, in the quick run where the network is clean.
ROWS = [("ib_write_bw", ["-n", "1000"], True), ("ib_read_bw", ["-n", "1000"], False), ("ib_send_bw", ["-n", "1000"], False),
        ("ib_atomic_bw", ["-n", "1000"], False), ("ib_write_lat", ["-n", "500"], False), ("ib_read_lat", ["-n", "500"], True),
        ("ib_send_lat", ["-n", "500"], False), ("ib_atomic_lat", ["-n", "500"], False),
        ("ib_write_bw", ["-a", "-q", "2", "-n", "10"], False)]


def roce_cases(maker, networks, all_sizes):
    """`networks`: hostnic lab's options by name."""
    for network, options in (("clean", []), ("loss 1%", ["--loss", "1%"])):
        for program, arguments, quick in ROWS:
            port = maker.next_port()
            command = [program, "-F", *arguments, "-p", str(port)]
            yield Case(f"{' '.join([program, *arguments])} [two NICs, transport=roce, {network}]",
                       maker.lab([*ROCE, *options], pair(port, maker.run_on("hnic0", command),
                                                         maker.run_on("hnic1", [*command, "127.0.0.1"]))),
                       180, quick and not options, perftest_rows(all_sizes if "-a" in arguments else 1))
    for network, options in networks.items():
        yield Case(f"hostnic-verify all operations [two NICs, transport=roce, {network}]",
                   maker.lab([*ROCE, *options], maker.verify_command(["--qps", "4"], "two NICs")), 180,
                   network == "loss 1%", verify_is_ok)
    for network, options in (("clean", []), ("loss 1%", ["--loss", "1%"])):
        yield Case(f"hostnic-verify error checks [two NICs, transport=roce, {network}]",
                   maker.lab([*ROCE, *options], maker.verify_command(["--check-errors", "--rounds", "0"], "two NICs")),
                   180, False, error_checks_are_ok)
