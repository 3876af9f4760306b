# SPDX-License-Identifier: BSD-3-Clause
"""hostnicd, rings and buffers in huge pages, which the cases reserve as root and give back."""

import re
import sys
from pathlib import Path

from harness import Case, no_trouble

TOOLS = Path(__file__).resolve().parents[1] / "tools"
sys.path.insert(0, str(TOOLS))
import huge_pages  # noqa: E402

# hostnicd's buffers, the segments of four devices, and the program's buffers; others that start a
# hostnicd meanwhile may take as many, where memory in one piece is left for that.
FEWEST_PAGES, PAGES = 300, 600
NEEDED_MB = 3 * PAGES * 2

CONFIG = """[hostnicd]
huge = "{huge}"
[[nic]]
port = "wire"
ip = "127.77.0.1/24"
[[nic]]
port = "wire"
ip = "127.77.0.2/24"
"""

# A device is open while it is looked at.
SHOW = ("ibv_asyncwatch -d hnic0 >/dev/null & watch=$!; "
        "for i in $(seq 100); do hostnic ctl 'show client' | grep -q asyncwatch && break; sleep 0.1; done; "
        "hostnic ctl 'show client'; "
        # What the program itself has mapped.
        "grep -A 20 hostnic-segment /proc/$watch/smaps | grep -m1 KernelPageSize; kill $watch; wait $watch; true")


def available_mb():
    found = re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())
    return int(found.group(1)) // 1024 if found else 0


def why_not():
    if not huge_pages.may_reserve():
        return "only root reserves huge pages"
    if available_mb() < NEEDED_MB:
        return f"less than {NEEDED_MB} MB of memory are available"
    return None


def rings_are_there(output):
    if not re.search(r"asyncwatch .*rings-in huge-pages", output):
        return "`show client` does not say that rings are in huge pages"
    if not re.search(r"KernelPageSize:\s+2048 kB", output):
        return "the program's mapping of the rings is not of huge pages"
    return no_trouble(output)


def refused(output):
    if not re.search(r"huge pages are required: \d+ MB needed, \d+ MB free .*vm\.nr_hugepages=\d+", output):
        return "the line that says how many huge pages are missing is not there"
    return None


def huge_page_cases(maker, scratch, pair_command, check):
    """`pair_command(arguments)`: ib_write_bw between two NICs inside a lab; `check` its output's."""
    config = scratch / "huge.toml"
    config.write_text(CONFIG.format(huge="require"))

    def reserving(pages, command):
        return [sys.executable, TOOLS / "huge_pages.py", str(pages), *command]

    lab = ["--config", config]
    skip = why_not()
    yield Case("rings in huge pages, ib_write_bw --use_hugepages [huge = require]",
               reserving(f"{PAGES}:{FEWEST_PAGES}", maker.lab(lab, pair_command(["--use_hugepages", "-s", "65536", "-n", "500"]))),
               180, True, check, skip=skip)
    yield Case("show client says that rings are in huge pages [huge = require]",
               reserving(f"{PAGES}:{FEWEST_PAGES}", maker.lab(lab, ["sh", "-c", SHOW])), 120, True, rings_are_there, skip=skip)
    # Sixteen NICs want more than is ever free by chance; none of them is reserved.
    many = scratch / "huge_many.toml"
    many.write_text(CONFIG.format(huge="require") + "".join(
        f'[[nic]]\nport = "wire"\nip = "127.77.0.{i}/24"\n' for i in range(3, 17)))
    line = " ".join(map(str, maker.lab(["--config", many], ["true"])))
    command = ["sh", "-c", f"{line}; test $? -ne 0"]
    # None, but nobody else reserves any meanwhile.
    yield Case("refuses to start without the huge pages that are required",
               reserving(0, command) if huge_pages.may_reserve() else command, 120, True, refused,
               skip=None if huge_pages.count("free_hugepages") < 100 else "huge pages are free here")
