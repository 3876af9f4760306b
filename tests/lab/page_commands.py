#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs the commands of a page and compares what they print with what the page says:

  page_commands.py [--build DIR] [--file FILE] [--show] PAGE...

A block between ``` and ``` whose first line begins with "$ " is a piece of a shell's session; other blocks, and those
that name a language behind the first fence, are for people only. All commands of a page run in one bash, in a new
directory, which has `packaging` of the sources and what --file names, and in a network namespace of its own, so that ports are the page's. A
command goes on on the next line where a quote is open or the line ends with a backslash.

What a command prints on stdout and stderr is compared line by line. Numbers stand for numbers, and units of time, size
and rate for others of their kind; a line `...` stands for any lines, `...` within a line for any text. Empty lines and
the width of spaces don't count. A command ends with status 0 unless `$ echo $?` follows it. --show prints what was
printed, for whoever writes a page.
"""

import argparse
import dataclasses
import os
import re
import secrets
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PROMPT = "$ "
# Not behind a letter: hnic0 and host1 are names.
NUMBER = re.compile(r"(?<![A-Za-z_])(?:0x[0-9a-f]+|\d[\d,]*(?:\.\d+)*)(?![A-Za-z_]*\d)")
UNITS = [(re.compile(r"N (?:ns|us|ms|s)\b"), "N time"), (re.compile(r"N (?:bytes|[kKMG]i?B)\b"), "N size"),
         (re.compile(r"N [kMG]b/s"), "N rate"), (re.compile(r"N [KMG]bit/sec"), "N rate")]
# Names of objects in hexadecimal, which may have no digit, and so are named by the word before them.
HEXADECIMAL = re.compile(r"\b0x[0-9a-f]+")
# What tshark says to root, and to nobody else.
TO_ROOT = 'Running as user "root" and group "root". This could be dangerous.'
SCRIPT = """exec 2>&1
ip link set lo up || exit 1
page_mark() {{ local status=$?; printf '\\n%s %d %d\\n' {token} "$1" $status; return $status; }}
{steps}
"""


@dataclasses.dataclass
class Step:
    line: int
    command: str
    expected: list


def is_complete(command):
    """Whether bash would not ask for another line."""
    if command.endswith("\\"):
        return False
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return False
    return True


def blocks_of(text):
    """(number of the first line, lines) of each block without a language."""
    fence, block = None, []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("```"):
            block.append(line)
        elif fence is None:
            fence, block = (number, line), []
        else:
            if fence[1] == "```":
                yield fence[0] + 1, block
            fence = None


def steps_of(text):
    steps = []
    for first, block in blocks_of(text):
        if not block or not block[0].startswith(PROMPT):
            continue
        for number, line in enumerate(block, first):
            if line.startswith(PROMPT):
                steps.append(Step(number, line[len(PROMPT):], []))
            elif not is_complete(steps[-1].command):
                steps[-1].command += "\n" + line
            else:
                steps[-1].expected.append(line)
    return steps


def plain(line):
    """A line as it is compared."""
    line = HEXADECIMAL.sub("N", " ".join(line.split()))
    line = NUMBER.sub("N", line)
    for pattern, name in UNITS:
        line = pattern.sub(name, line)
    return line


def pattern_of(expected):
    parts = []
    for line in filter(None, map(plain, expected)):
        parts.append(r"(?:.*\n)*?" if line == "..." else re.escape(line).replace(re.escape("..."), ".*") + "\n")
    return "".join(parts)


def agrees(expected, printed):
    seen = "".join(line + "\n" for line in filter(None, map(plain, printed)))
    return re.fullmatch(pattern_of(expected), seen) is not None


def session(steps, build, files):
    """Runs them: a list of (printed lines, status), which is shorter than `steps` where the shell ended before."""
    token = f"page-{secrets.token_hex(8)}"
    script = SCRIPT.format(token=token, steps="\n".join(f"{step.command}\npage_mark {number}"
                                                        for number, step in enumerate(steps)))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOSTNIC_")}
    unshare = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-Urn"]
    with tempfile.TemporaryDirectory(prefix="hostnic-page-") as directory:
        for path in (REPOSITORY / "packaging", *files):
            (Path(directory) / path.name).symlink_to(path.resolve())
        done = subprocess.run([*unshare, "bash", "-c", script], cwd=directory, stdin=subprocess.DEVNULL, check=False,
                              stdout=subprocess.PIPE, text=True, errors="replace",
                              env={**kept, "PATH": f"{build}:{kept['PATH']}", "LC_ALL": "C.UTF-8"})
    results, lines = [], []
    for line in done.stdout.splitlines():
        if line.startswith(token):
            results.append((lines, int(line.split()[2])))
            lines = []
        elif line != TO_ROOT:
            lines.append(line)
    return results + ([(lines, done.returncode)] if len(results) < len(steps) else [])


def problems(steps, results):
    """(step, why) of each that is not as the page says."""
    for number, step in enumerate(steps):
        if number >= len(results):
            yield step, "the shell ended before it"
            continue
        printed, status = results[number]
        asked = number + 1 < len(steps) and steps[number + 1].command == "echo $?"
        if status != 0 and not asked:
            yield step, f"exit status {status}"
        elif not agrees(step.expected, printed):
            yield step, "it prints something else"


def check(page, build, files, show):
    """Whether a page is true; prints what is not."""
    steps = steps_of(page.read_text(encoding="utf-8"))
    name = os.path.relpath(page.resolve(), REPOSITORY)
    if not steps:
        print(f"FAIL {name}: it has no commands")
        return False
    results = session(steps, build, files)
    wrong = list(problems(steps, results))
    for step, (printed, _) in zip(steps, results) if show else ():
        print("\n".join([f"{PROMPT}{step.command}", *printed]))
    for step, why in wrong:
        at = steps.index(step)
        printed = results[at][0] if at < len(results) else []
        print("\n".join([f"FAIL {name}:{step.line}: {why}: {step.command}", "  the page says:",
                         *(f"    {line}" for line in step.expected), "  it printed:", *(f"    {line}" for line in printed)]))
    if not wrong:
        print(f"page commands: {name}: {len(steps)} as the page says")
    return not wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=REPOSITORY / "build", help="build directory (default: %(default)s)")
    parser.add_argument("--file", type=Path, action="append", default=[], help="a file that the page takes for granted")
    parser.add_argument("--show", action="store_true", help="print what the commands print")
    parser.add_argument("pages", nargs="+", type=Path, metavar="PAGE")
    options = parser.parse_args()
    build = options.build.resolve()
    return 0 if all([check(page, build, options.file, options.show) for page in options.pages]) else 1


if __name__ == "__main__":
    sys.exit(main())
