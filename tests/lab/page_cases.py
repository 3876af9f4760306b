# SPDX-License-Identifier: BSD-3-Clause
"""Pages whose commands are run, and print what the page says (page_commands.py), and what page_commands.py itself must
notice."""

import shutil
import subprocess
import sys

from command_cases import output_has
from harness import HERE, REPOSITORY, Case

CHECK = HERE / "page_commands.py"
# Page, and the programs beside the build's that it needs. docs/ci.md is one of ci_cases.py.
STOCK = ("ibv_devinfo", "ibv_rc_pingpong", "ib_write_bw")
PAGES = {
    "docs/course/1-ping-pong.md": STOCK,
    "docs/course/2-write.md": STOCK,
    "docs/course/3-loss.md": STOCK,
    "docs/course/4-status-12.md": STOCK,
    "docs/course/5-packets.md": (*STOCK, "tshark"),
    "docs/soft-roce.md": STOCK,
    "docs/troubleshoot.md": STOCK,
}
# Pages that are wrong, and what is said of each.
WRONG = {
    "another output": ("$ echo one\ntwo", r":2: it prints something else: echo one"),
    "another word beside numbers": ("$ echo 3 apples\n4 pears", r":2: it prints something else"),
    "a line too many": ("$ printf 'a\\nb\\n'\na", r":2: it prints something else"),
    "a failure": ("$ sh -c 'exit 3'", r":2: exit status 3"),
    "an end": ("$ exit 0\n$ true", r":3: the shell ended before it"),
    "nothing to run": ("no commands", r"it has no commands"),
}
RIGHT = "$ echo 12 us 'of\nhnic0'\n3.5 ms of\nhnic0\n$ seq 9\n1\n...\n9\n$ false\n$ echo $?\n1\n$ echo a b c\na ... c"


def missing(programs):
    """None, or why a page's commands can't run here."""
    for program in ("unshare", "ip", "bash", *programs):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    if subprocess.run(["unshare", "-Urn", "true"], capture_output=True, check=False).returncode != 0:
        return "no network namespace may be made here"
    return None


def page_cases(maker):
    run = [sys.executable, CHECK, "--build", maker.build]
    for page, programs in PAGES.items():
        yield Case(f"commands of {page}", [*run, REPOSITORY / page], 120, False,
                   output_has(rf"page commands: {page}: [1-9]\d* as the page says"), skip=missing(programs))
    scratch = maker.scratch()
    for name, (block, pattern) in WRONG.items():
        page = scratch / f"{name.replace(' ', '-')}.md"
        page.write_text(f"```\n{block}\n```\n")
        yield Case(f"page commands notice {name}", ["sh", "-c", f"{' '.join(map(str, run))} {page}; test $? -eq 1"], 30,
                   False, output_has(pattern), skip=missing(()))
    page = scratch / "right.md"
    page.write_text(f"```\n{RIGHT}\n```\n\n```text\n$ false\n```\n")
    yield Case("page commands: numbers, units, dots", [*run, page], 30, False, output_has(r"5 as the page says"),
               skip=missing(()))
